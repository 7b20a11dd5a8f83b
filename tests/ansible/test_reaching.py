"""Hosts that refuse the login or sudo; the long tests have a real sshd in a root file system."""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pagecage.ansible import HostResult
from pagecage.cli.host import provision
from pagecage.errors import HostError, PagecageError
from pagecage.fleet.provisioning import ProvisionRequest, run_playbook
from pagecage.model.json_codec import Json
from pagecage.process import run, spawn
from tests.ansible.hosts import FOR_ROOT, root_file_system
from tests.tree import ROOT

pytestmark = FOR_ROOT
PASSWORD = "right"
SETUP = (
    f"useradd --create-home tester && echo tester:{PASSWORD} | chpasswd && adduser --quiet tester"
    " sudo"
)


@dataclass(frozen=True)
class Server:
    """An sshd in a root file system: its root, port, and the key that opens tester's account."""

    root: Path
    port: int
    key: Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    key = tmp_path_factory.mktemp("key") / "id"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key])
    with root_file_system("bookworm") as root:
        run(["chroot", root, "sh", "-c", f"{SETUP} && mkdir -p /run/sshd"])
        (root / "home/tester/.ssh").mkdir()
        shutil.copy(f"{key}.pub", root / "home/tester/.ssh/authorized_keys")
        run(["chroot", root, "chown", "-R", "tester:tester", "/home/tester/.ssh"])
        port = free_port()
        options = ("-D", "-p", str(port), "-o", "ListenAddress=127.0.0.1")
        sshd = spawn(["chroot", root, "/usr/sbin/sshd", *options])
        try:
            wait_for(port)
            yield Server(root, port, key)
        finally:
            sshd.terminate()
            sshd.wait()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("sshd did not come up")


def project(tmp_path: Path, port: int, key: Path, **settings: Any) -> Path:
    """Return a project whose inventory has a port of this machine as the group `rack`."""
    shutil.copytree(ROOT / "ansible", tmp_path / "ansible")
    for name in (".venv", ".venv-ansible", "pagecage", "build", "cgroups"):
        (tmp_path / name).symlink_to(ROOT / name)
    options = (
        "-o ControlMaster=no -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o"
        " ConnectTimeout=10"
    )
    variables = {
        "ansible_host": "127.0.0.1",
        "ansible_port": port,
        "ansible_user": "tester",
        "ansible_ssh_private_key_file": str(key),
        "ansible_ssh_args": options,
        "pagecage_data_dir": "/srv/pagecage",
        "pagecage_data_device": "none",
        **settings,
    }
    pair: Json = {"hosts": {"lab-1": {}, "lab-2": {}}}
    hosts: Json = {"rack": {"hosts": {"lab-1": variables}}, "empty": {}, "pair": pair}
    (tmp_path / "ansible/inventory/fleet.yml").write_text(json.dumps({"all": {"children": hosts}}))
    return tmp_path


def ends(
    top: Path, group: str = "rack", playbook: str = "site.yml", **order: Any
) -> Mapping[str, HostResult]:
    request = ProvisionRequest(group, playbook, **order)
    return run_playbook(request, top / "log", print, lambda _: None, top)


def refused(top: Path, **order: Any) -> HostError:
    end = ends(top, **order)["lab-1"]
    error = end.error(top / "log/site.log")
    assert end.changed == 0
    assert error is not None
    return error


def test_a_host_that_does_not_answer(tmp_path: Path) -> None:
    port = free_port()
    error = refused(project(tmp_path, port, tmp_path / "no-key"))
    assert error.message.startswith("lab-1: the host is unreachable (")
    assert "Connection refused" in error.message
    assert error.hint == f"make `ssh -p {port} tester@127.0.0.1 true` work without a prompt"


@pytest.mark.long
def test_a_host_that_does_not_know_our_key(tmp_path: Path, server: Server) -> None:
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"])
    error = refused(project(tmp_path, server.port, tmp_path / "other"))
    assert error.message.startswith("lab-1: the host is unreachable (")
    assert "Permission denied" in error.message


@pytest.mark.long
@pytest.mark.parametrize(
    ("password", "expected"),
    [(None, "Missing sudo password"), ("wrong", "Incorrect sudo password")],
    ids=["none", "wrong"],
)
def test_sudo_that_does_not_let_us(
    tmp_path: Path, server: Server, password: str | None, expected: str
) -> None:
    given = None
    if password is not None:
        given = tmp_path / "password"
        given.write_text(password)
    error = refused(project(tmp_path, server.port, server.key), password_file=given)
    assert expected in error.message
    hint = "repeat with ASK=1 (--ask-password) and sudo's password for tester@127.0.0.1"
    assert error.hint == hint
    assert not (server.root / "var/lib/pagecage").exists()


@pytest.mark.long
def test_the_right_password_leads_to_the_next_question(tmp_path: Path, server: Server) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    top = project(tmp_path, server.port, server.key, pagecage_data_device="/dev/none")
    error = refused(top, password_file=tmp_path / "password")
    assert error.message == "lab-1: there is no device /dev/none"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_over_ssh_and_sudo_a_host_is_made_fit_and_put_back(tmp_path: Path, server: Server) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    users = {"pagecage_delegated_users": ["tester"]}
    top = project(tmp_path, server.port, server.key, **users, inspection_running=False)
    changed = []
    for playbook in ("site.yml", "site.yml", "verify.yml", "unprovision.yml", "unprovision.yml"):
        end = ends(top, playbook=playbook, password_file=tmp_path / "password")["lab-1"]
        assert end.stopped_by is None
        changed.append(end.changed)
    assert changed[0] > 10
    assert changed[1:3] == [0, 0]
    assert changed[3] > 5
    assert changed[4] == 0
    folders = ("opt/pagecage", "var/lib/pagecage", "srv/pagecage")
    for path in (*folders, "usr/bin/fio", "usr/bin/python3"):
        assert not (server.root / path).exists(), path


def test_orders_that_make_no_sense(tmp_path: Path) -> None:
    top = project(tmp_path, 1, tmp_path / "no-key")
    with pytest.raises(PagecageError, match="the group 'empty' has no hosts"):
        ends(top, "empty")
    with pytest.raises(PagecageError, match="--device /dev/sdb would apply to 2 hosts"):
        ends(top, "pair", device="/dev/sdb")


def test_the_command_line_ends_with_2_for_an_unknown_group() -> None:
    with pytest.raises(PagecageError) as caught:
        provision("no-such-group")
    assert caught.value.exit_code == 2
    assert "local" in caught.value.hint
