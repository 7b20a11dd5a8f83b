"""This machine as a host: what it refuses, and how files get into a place where nobody else may
write.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from types import SimpleNamespace
from typing import Any

import pytest

from pagecage.agent import host_session
from pagecage.errors import HostError, PagecageError
from pagecage.hosts import local
from pagecage.hosts.host import ResourceNeeds
from pagecage.hosts.local import LocalHost
from pagecage.linux import procfs
from pagecage.model.trial import Package
from pagecage.process import run, spawn
from pagecage.units import GIB
from tests.builders.facts import FIT
from tests.builders.programs import install, install_first

NEED = ResourceNeeds(2**31, 2**20)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalHost:
    made = LocalHost(tmp_path / "data")
    made.spool_dir = str(tmp_path / "spool")
    known: dict[str, Any] = {**FIT, "free_bytes": 100 * 2**20, "cpu_model": "Some CPU"}
    monkeypatch.setattr(made, "facts", lambda: known)
    return made


def test_a_fit_machine_serves(host: LocalHost) -> None:
    host.prepare(NEED, lambda _: None)
    state = host.start()
    assert (state.state_id, state.restore_seq, state.emulated) == (None, None, False)
    assert host.restart() == state
    assert host.outer_sample() is None
    host.stop()


def test_the_real_facts_of_this_machine_can_be_asked(tmp_path: Path) -> None:
    facts = LocalHost(tmp_path).facts()
    assert facts["kernel"] == os.uname().release
    assert facts["free_bytes"] > 0


def test_what_the_machine_lacks_is_said(host: LocalHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "facts", lambda: {**FIT, "disk": {"error": "/ is an overlay"}})
    with pytest.raises(HostError, match="/ is an overlay") as caught:
        host.prepare(NEED, lambda _: None)
    assert caught.value.hint == "name another --data-dir"


def test_a_machine_that_holds_no_limits_can_be_prepared(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {**FIT, "systemd": {"pid1": False, "version": 0, "user": False}}
    monkeypatch.setattr(host, "facts", lambda: known)
    host.prepare(NEED, lambda _: None)
    assert [missed.hint for missed in host.missed_for_limits()] == ["use HOST=vm"]


def test_a_missing_package_is_refused_with_the_command_that_installs_it(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Package("git", "git")
    versions: dict[str, str | None] = {"git": None}
    found = {"family": "debian", "versions": versions}
    monkeypatch.setattr(local, "read_packages", lambda _: found)
    with pytest.raises(HostError, match="package git is missing on this machine") as caught:
        host.prepare(replace(NEED, distribution_packages=(package,)), lambda _: None)
    assert caught.value.hint == "sudo apt-get install git"
    versions["git"] = "1:2.47.3"
    host.prepare(replace(NEED, distribution_packages=(package,)), lambda _: None)


def test_a_run_beside_another_is_refused_before_it_is_planned(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "facts", lambda: FIT)
    lock = Path(host.spool_dir) / "lock"
    lock.parent.mkdir()
    with lock.open("w") as file:
        host.prepare(NEED, lambda _: None)
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(HostError, match="another run is using this machine"):
            host.prepare(NEED, lambda _: None)
    host.prepare(NEED, lambda _: None)


def test_resident_data_must_fit_into_memory(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "facts", lambda: FIT)
    monkeypatch.setattr(procfs, "meminfo_bytes", lambda _: 10 * GIB)
    host.prepare(replace(NEED, resident_bytes=10 * GIB), lambda _: None)
    with pytest.raises(HostError, match=r"15 GiB of data must stay in memory.* has 10 GiB"):
        host.prepare(replace(NEED, resident_bytes=15 * GIB), lambda _: None)


@pytest.mark.parametrize(
    ("model", "emulated"), [("QEMU TCG CPU version 2.5+", True), ("AMD EPYC", False), (None, False)]
)
def test_an_emulated_machine_knows_it(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch, model: str | None, emulated: bool
) -> None:
    monkeypatch.setattr(host, "facts", lambda: {**FIT, "cpu_model": model})
    assert host.is_emulated(lambda _: None) is emulated


def test_a_dataset_that_does_not_fit_is_refused(host: LocalHost) -> None:
    host.require_free_space(90 * 2**20)
    with pytest.raises(PagecageError, match="do not fit") as caught:
        host.require_free_space(101 * 2**20)
    assert caught.value.exit_code == 2


def test_a_dataset_that_is_there_already_needs_no_room(host: LocalHost) -> None:
    Path(host.data_dir).mkdir()
    with Path(host.data_dir, "random-209715200-1.bin").open("wb") as file:
        file.truncate(200 * 2**20)
    host.require_free_space(200 * 2**20)
    prepared = Path(host.data_dir) / "prepared/0123/data/below"
    prepared.mkdir(parents=True)
    with pytest.raises(PagecageError):
        host.require_free_space(310 * 2**20)
    with (prepared / "table").open("wb") as file:
        file.truncate(100 * 2**20)
    host.require_free_space(310 * 2**20)


def test_files_arrive_with_their_names_and_modes(host: LocalHost, tmp_path: Path) -> None:
    source = install(tmp_path / "pcread", "#!/bin/sh\nexit 7\n")
    host.push([source], f"{host.spool_dir}/bin")
    assert [path.name for path in Path(host.spool_dir, "bin").iterdir()] == ["pcread"]
    assert os.access(Path(host.spool_dir, "bin/pcread"), os.X_OK)


def test_a_program_that_still_runs_can_be_replaced(host: LocalHost, tmp_path: Path) -> None:
    """Opening a running program for writing is refused by the kernel (ETXTBSY)."""
    sleep = Path("/bin/sleep").resolve()
    source = tmp_path / "pcread"
    source.write_bytes(sleep.read_bytes())
    source.chmod(0o755)
    host.push([source], f"{host.spool_dir}/bin")
    process = spawn([f"{host.spool_dir}/bin/pcread", "30"])
    try:
        host.push([source], f"{host.spool_dir}/bin")
    finally:
        process.kill()
        process.wait()


def test_a_run_of_another_user_keeps_this_machine(
    host: LocalHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_session, "MACHINE", tmp_path)
    with (
        host_session.alone(tmp_path / "spool-of-root"),
        pytest.raises(HostError, match=rf"using this machine \(process {os.getpid()}\)"),
    ):
        host.prepare(ResourceNeeds(0, 0), lambda _: None)


def test_nobody_else_lists_the_spool_or_writes_to_it(host: LocalHost) -> None:
    host.push([], host.spool_dir)
    assert Path(host.spool_dir).stat().st_mode & 0o066 == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root's servers go on as another user")
def test_a_server_that_drops_roots_rights_reaches_its_data(host: LocalHost) -> None:
    host.push([], f"{host.spool_dir}/disk")
    assert Path(host.spool_dir).stat().st_mode & 0o001


@pytest.mark.parametrize("kind", ["open", "link"])
def test_a_spool_that_somebody_else_prepared_is_refused(
    host: LocalHost, tmp_path: Path, kind: str
) -> None:
    """Files in the spool are run, by root where root measures; /dev/shm is open to everybody."""
    spool = Path(host.spool_dir)
    if kind == "open":
        spool.mkdir()
        spool.chmod(0o777)
    else:
        (tmp_path / "elsewhere").mkdir()
        spool.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostError, match="belongs to another user"):
        host.push([], f"{host.spool_dir}/bin")


def test_a_users_systemd_is_named_where_no_login_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """After `su` nobody has set XDG_RUNTIME_DIR, without which `systemctl --user` finds nothing to
    connect to.
    """
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert LocalHost().command(["id"]) == ["env", "XDG_RUNTIME_DIR=/run/user/1000", "id"]
    assert LocalHost().interactive(["id"]) == LocalHost().command(["id"])
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert LocalHost().command(["id"]) == ["id"]
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert LocalHost().command(["id"]) == ["id"]


def test_where_things_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert LocalHost().data_dir == f"{tmp_path}/pagecage/data"
    assert LocalHost().spool_dir == f"{tmp_path}/pagecage"
    assert LocalHost().user


def test_the_agent_is_run_by_our_python_and_not_by_the_first_on_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first on PATH may be too old, or a shim; and the user's settings are for his programs,
    not for the agent.
    """
    install_first(tmp_path / "python3", "#!/bin/sh\nexit 127\n", monkeypatch)
    monkeypatch.setenv("PYTHONHOME", "/nonexistent")
    program = tmp_path / "agent.py"
    program.write_text("import json, os; print(os.environ['PYTHONHOME'])")
    done = run(LocalHost().command(["python3", str(program)]))
    assert done.stdout == "/nonexistent\n", "a workload inherits it"


def test_the_spool_is_in_memory_for_who_has_a_runtime_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container has none, and its /dev/shm is noexec."""
    assert local._spool_dir(0, tmp_path, tmp_path) == f"{tmp_path}/pagecage"
    assert local._spool_dir(7, tmp_path) == f"{tmp_path}/pagecage"
    assert local._spool_dir(7, tmp_path / "none") == f"{gettempdir()}/pagecage-7"
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    assert local._spool_dir(0, tmp_path, tmp_path) == f"{gettempdir()}/pagecage-0"
    assert local._spool_dir(7, tmp_path) == f"{gettempdir()}/pagecage-7"
