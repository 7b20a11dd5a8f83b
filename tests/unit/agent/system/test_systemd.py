"""The exact systemd commands, and the units left by a killed agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pagecage.errors import HostError, PagecageError
from pagecage.linux import systemd
from pagecage.linux.systemd import Systemd, is_pid1, systemd_version, unit_name
from pagecage.model.cage import Cage
from pagecage.process import Completed
from tests.fake_host.machine import CAGE, DISK, Machine

SYSTEM, USER = Systemd(False, 257), Systemd(True, 257)


def test_a_units_name_holds_one_dash_and_the_attempt() -> None:
    assert unit_name("r1_uncaged_heap", 2) == "pagecage-r1_uncaged_heap.2.slice"
    assert unit_name("a-b-c") == "pagecage-a_b_c.1.slice"


def test_limits_come_before_the_start() -> None:
    first, second = SYSTEM.make_commands(
        "pagecage-x.1.slice", Cage("c", {"MemoryMax": 4096}), "/dev/vdb"
    )
    assert first[:4] == ["systemctl", "set-property", "--runtime", "pagecage-x.1.slice"]
    assert "MemoryMax=4096" in first
    assert second == ["systemctl", "start", "pagecage-x.1.slice"]


def test_a_users_manager_is_asked_as_such() -> None:
    assert USER.systemctl("stop", "x") == ["systemctl", "--user", "stop", "x"]
    assert "--user" in USER.enter_command("pagecage-x.1.slice", ["true"])
    assert "--user" not in SYSTEM.enter_command("pagecage-x.1.slice", ["true"])


def test_the_scope_is_in_the_slice_and_execs_the_program() -> None:
    command = SYSTEM.enter_command("pagecage-x.1.slice", ["/bin/prog", "--flag", "-p"])
    assert command[:2] == ["systemd-run", "--quiet"]
    assert {"--scope", "--collect", "--slice=pagecage-x.1.slice", "--unit=pagecage-run-x.1"} < set(
        command
    )
    assert command[command.index("--") + 1 :] == ["/bin/prog", "--flag", "-p"]


@pytest.mark.parametrize(("version", "given"), [(252, False), (253, True), (257, True)])
def test_an_oom_policy_where_scopes_know_one(version: int, given: bool) -> None:
    assert (
        "OOMPolicy=kill" in Systemd(False, version).enter_command("pagecage-x.1.slice", ["true"])
    ) is given


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("systemd 257 (257.13-1~deb13u1)\n+PAM", 257),
        ("systemd 252 (252.39)", 252),
        ("systemd 256~rc3", 256),
        ("systemd 249.11-0ubuntu3.12", 249),
        ("", 0),
        ("systemd", 0),
        ("does not answer", 0),
    ],
)
def test_versions(line: str, version: int) -> None:
    assert systemd_version(line) == version


@pytest.mark.parametrize(("name", "first"), [("systemd\n", True), ("init\n", False), (None, False)])
def test_process_1_is_systemd_or_not(tmp_path: Path, name: str | None, first: bool) -> None:
    (tmp_path / "1").mkdir()
    if name:
        (tmp_path / "1/comm").write_text(name)
    assert is_pid1(tmp_path) is first


def test_a_users_slices_are_under_their_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert str(USER.parent_cgroup()).endswith(
        "user.slice/user-1000.slice/user@1000.service/pagecage.slice"
    )
    assert str(USER.control_directory()) == "/run/user/1000/systemd/user.control"


def test_the_systems_drop_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert systemd.Systemd(False, 257).control_directory() == Path("/run/systemd/system.control")
    assert SYSTEM.parent_cgroup() == Path("/sys/fs/cgroup/pagecage.slice")


def test_a_slice_starts_with_its_limits_and_goes_with_its_drop_ins(machine: Machine) -> None:
    cgroup = SYSTEM.make("pagecage-x.1.slice", CAGE, DISK)
    assert (cgroup.directories[0] / "memory.max").read_text() == str(CAGE.properties["MemoryMax"])
    assert SYSTEM.left_over() == ["pagecage-x.1.slice"]
    SYSTEM.remove("pagecage-x.1.slice")
    assert machine.left() == []
    assert SYSTEM.left_over() == []


def test_stopping_a_slice_that_never_existed_is_no_error(machine: Machine) -> None:
    SYSTEM.remove("pagecage-never.1.slice")
    assert machine.left() == []


def test_a_refusal_is_an_error_with_systemds_message(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "start")
    with pytest.raises(PagecageError, match=r"Failed to start pagecage-x\.1\.slice: asked to"):
        SYSTEM.make("pagecage-x.1.slice", CAGE, DISK)


def test_leftover_slices_are_found_by_cgroup_or_drop_in(machine: Machine) -> None:
    parent = machine.cgroups / "pagecage.slice"
    for name in ("pagecage-one.1.slice", "other.slice", "pagecage-run-x.scope"):
        (parent / name).mkdir(parents=True)
    for name in ("pagecage-two.1.slice.d", "ssh.service.d", "pagecage-one.1.slice.d"):
        (machine.control / name).mkdir()
    assert SYSTEM.left_over() == ["pagecage-one.1.slice", "pagecage-two.1.slice"]


def test_a_stop_that_failed_once_is_repeated(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    SYSTEM.make("pagecage-x.1.slice", CAGE, DISK)
    real, calls = systemd.run, []

    def fail_once(argv: list[str], **given: Any) -> Completed:
        calls.append(argv)
        return Completed((), -9, "", "") if len(calls) == 1 else real(argv, **given)

    monkeypatch.setattr(systemd, "run", fail_once)
    SYSTEM.remove("pagecage-x.1.slice")
    assert (len(calls), machine.left()) == (2, [])


def test_a_slice_that_stays_is_an_error(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    SYSTEM.make("pagecage-x.1.slice", CAGE, DISK)
    monkeypatch.setenv("FAKE_FAILS", "stop")
    with pytest.raises(HostError, match=r"pagecage-x\.1\.slice could not be stopped"):
        SYSTEM.remove("pagecage-x.1.slice")
