"""Hosts over SSH, and the socket of a shared connection."""

from __future__ import annotations

import json
import os
import shlex
import socket
import threading
from pathlib import Path

import pytest

from pagecage.errors import HostDied, HostError
from pagecage.hosts.ssh import SshTarget, master_argv, push, remove_stale_socket, ssh_argv
from pagecage.hosts.vm.guest_client import release, wake
from pagecage.hosts.vm.guest_daemon import answer
from tests.builders.programs import install_first

TARGET = SshTarget(
    "127.0.0.1", 40017, "root", Path("/k/id"), Path("/k/known"), "pagecage-guest", Path("/s/ssh")
)


def test_the_host_key_is_pinned_and_nothing_comes_from_the_users_own_settings() -> None:
    argv = ssh_argv(TARGET, ["true"])
    assert argv[argv.index("-F") + 1] == "none"
    for setting in (
        "StrictHostKeyChecking=yes",
        "UserKnownHostsFile=/k/known",
        "PasswordAuthentication=no",
        "BatchMode=yes",
    ):
        assert setting in argv
    assert master_argv(TARGET)[:3] == ["setpriv", "--pdeathsig", "KILL"]


def test_words_stay_words_on_the_other_side() -> None:
    words = ["printf", "%s\n", "a b", "$HOME", "it's", ""]
    assert shlex.split(ssh_argv(TARGET, words)[-1]) == words


@pytest.mark.parametrize("line", [b"", b"{", b'{"do": "dance"}', b'{"do": "wake"}', b"[]"])
def test_the_guest_daemon_survives_invalid_requests(line: bytes) -> None:
    assert "error" in json.loads(answer(line))


def serve_once(path: Path, reply: bytes) -> threading.Thread:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(1)

    def reply_to_one() -> None:
        with server, server.accept()[0] as line:
            line.recv(65536)
            line.sendall(reply)

    thread = threading.Thread(target=reply_to_one)
    thread.start()
    return thread


def test_what_the_guest_says_went_wrong_is_handed_on(tmp_path: Path) -> None:
    thread = serve_once(tmp_path / "port", b'{"error": "the data disk did not appear"}\n')
    with pytest.raises(HostError, match="the data disk did not appear"):
        wake(tmp_path / "port", "root", {"pagecage-data": "/data"}, ["/data"])
    thread.join()


@pytest.mark.parametrize("reply", [b"", b"half a l"])
def test_a_guest_that_hangs_up_has_died(tmp_path: Path, reply: bytes) -> None:
    thread = serve_once(tmp_path / "port", reply)
    with pytest.raises(HostError):
        wake(tmp_path / "port", "root", {"pagecage-data": "/data"}, ["/data"])
    thread.join()


def test_nobody_at_the_port(tmp_path: Path) -> None:
    with pytest.raises(HostDied):
        wake(tmp_path / "port", "root", {"pagecage-data": "/data"}, ["/data"])
    assert release(tmp_path / "port") is False


def test_nothing_to_copy_makes_no_connection() -> None:
    """A replay brings no workload, and tar refuses to pack nothing."""
    push(TARGET, [], "/data")


@pytest.fixture
def ssh_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run what ssh would run on a host in a shell here; return an empty folder."""
    script = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'
    install_first(tmp_path / "bin/ssh", script, monkeypatch)
    (tmp_path / "agent.pyz").write_text("agent")
    return tmp_path


def test_files_go_to_a_directory_of_this_account_alone(ssh_here: Path) -> None:
    for _ in range(2):
        push(TARGET, [ssh_here / "agent.pyz"], f"{ssh_here}/it's the spool")
    spool = ssh_here / "it's the spool"
    assert (spool / "agent.pyz").read_text() == "agent"
    assert spool.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["open", "link", "file", "foreign"])
def test_a_directory_that_another_user_made_gets_no_file(ssh_here: Path, kind: str) -> None:
    """Its files are run, by root."""
    spool, elsewhere = ssh_here / "spool", ssh_here / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if kind == "open":
        spool.mkdir()
        spool.chmod(0o770)
    elif kind == "link":
        spool.symlink_to(elsewhere)
    elif kind == "file":
        spool.touch()
    elif os.getuid() == 0:
        spool.mkdir()
        os.chown(spool, 1234, 1234)
    else:
        spool = Path("/usr")
    with pytest.raises((HostError, HostDied)) as caught:
        push(TARGET, [ssh_here / "agent.pyz"], str(spool))
    assert kind == "file" or "belongs to another user" in caught.value.message
    assert not list(ssh_here.glob("*/agent.pyz"))


def test_only_a_socket_that_nobody_listens_on_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "ssh"
    remove_stale_socket(path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        remove_stale_socket(path)
        assert path.exists()
    remove_stale_socket(path)
    assert not path.exists()
