"""The exact systemd commands, and the units left by a killed agent."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.errors import HostError, PagecageError
from pagecage.linux import systemd
from pagecage.linux.systemd import (
    MEMBER,
    SIGNAL,
    SIGNATURE,
    Systemd,
    UnitMethods,
    connected,
    decode,
    encode,
    is_pid1,
    scope_properties,
    systemd_version,
    to_properties,
    types_of,
    unit_name,
)
from pagecage.model.cage import Cage, DiskLimits, property_arguments
from pagecage.process import Completed, run
from tests.builders.service_manager import Answer, FakeUnits
from tests.fake_host.machine import CAGE, DISK, Machine
from tests.tree import ROOT

SYSTEM, USER = Systemd(False, 257), Systemd(True, 257)


def test_a_units_name_holds_one_dash_and_the_attempt() -> None:
    assert unit_name("r1_uncaged_heap", 2) == "pagecage-r1_uncaged_heap.2.slice"
    assert unit_name("a-b-c") == "pagecage-a_b_c.1.slice"


def test_limits_come_before_the_start() -> None:
    cage = Cage("c", {"MemoryMax": 4096})
    first, second = SYSTEM.make_commands("pagecage-x.1.slice", cage, "/dev/vdb")
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
    options = {"--scope", "--collect", "--slice=pagecage-x.1.slice", "--unit=pagecage-run-x.1"}
    assert options < set(command)
    assert command[command.index("--") + 1 :] == ["/bin/prog", "--flag", "-p"]


@pytest.mark.parametrize(("version", "given"), [(252, False), (253, True), (257, True)])
def test_an_oom_policy_where_scopes_know_one(version: int, given: bool) -> None:
    command = Systemd(False, version).enter_command("pagecage-x.1.slice", ["true"])
    assert ("OOMPolicy=kill" in command) is given


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
    place = "user.slice/user-1000.slice/user@1000.service/pagecage.slice"
    assert str(USER.parent_cgroup()).endswith(place)
    assert str(USER.control_directory()) == "/run/user/1000/systemd/user.control"


def test_the_systems_drop_ins() -> None:
    assert SYSTEM.control_directory() == Path("/run/systemd/system.control")
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


def test_a_refusal_is_an_error_with_systemds_message(machine: Machine) -> None:
    machine.misbehave(FAILS="start")
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
    calls: list[list[str]] = []

    def fail_once(argv: list[str], **given: Any) -> Completed:
        calls.append(argv)
        return Completed((), -9, "", "") if len(calls) == 1 else run(argv, **given)

    monkeypatch.setattr(systemd, "run", fail_once)
    SYSTEM.remove("pagecage-x.1.slice")
    assert (len(calls), machine.left()) == (2, [])


def test_a_slice_that_stays_is_an_error(machine: Machine) -> None:
    SYSTEM.make("pagecage-x.1.slice", CAGE, DISK)
    machine.misbehave(FAILS="stop")
    with pytest.raises(HostError, match=r"pagecage-x\.1\.slice could not be stopped"):
        SYSTEM.remove("pagecage-x.1.slice")


CAPTURED: dict[str, Any] = json.loads((ROOT / "tests/fixtures/systemd-calls.json").read_text())
"""Messages of systemctl and systemd-run themselves, recorded on a socket."""
LIMITED = Cage(
    "x",
    {"MemoryMax": 8388608, "MemorySwapMax": 0, "IOReadIOPSMax": 100},
    disks={"wal": DiskLimits({"IOReadBandwidthMax": 20_000_000})},
)
UNIT = "pagecage-x.1.slice"
Serve = Callable[[Answer], FakeUnits]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private"


@pytest.fixture
def serve(path: Path) -> Iterator[Serve]:
    served: list[FakeUnits] = []

    def begin(answer: Answer) -> FakeUnits:
        served.append(FakeUnits(path, lambda *_: answer))
        return served[-1]

    yield begin
    for one in served:
        one.close()


def call_like_systemctl(manager: UnitMethods, command: str) -> None:
    arguments = property_arguments(LIMITED, "/dev/vda", {"wal": "/dev/vdb"})
    if " set-property " in command:
        manager.set_properties(UNIT, to_properties([*arguments, "CPUQuota=50%"]))
    elif " start " in command:
        manager.start(UNIT)
    elif " stop " in command:
        manager.stop(UNIT)
    else:
        policy, described = {"OOMPolicy": "kill"}, CAPTURED["description"]
        properties = scope_properties(UNIT, CAPTURED["pid"], policy, described)
        manager.start_scope("pagecage-run-x.1.scope", properties)


@pytest.mark.parametrize("message", CAPTURED["messages"], ids=lambda one: one["command"][:24])
def test_the_message_is_that_of_the_command(
    path: Path, serve: Serve, message: dict[str, str]
) -> None:
    served = serve(("done", ""))
    with connected(path) as manager:
        call_like_systemctl(manager, message["command"])
    assert served.received[0].hex() == message["bytes"]


def test_calls_follow_each_other_on_a_connection(path: Path, serve: Serve) -> None:
    served = serve(("done", ""))
    with connected(path) as manager:
        manager.set_properties(UNIT, [])
        manager.start(UNIT)
    with connected(path) as manager:
        manager.stop(UNIT)
    assert [member for member, _ in served.calls] == ["SetUnitProperties", "StartUnit", "StopUnit"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        *(
            ((result, ""), f"StartUnit of {UNIT} ended as {result}")
            for result in ("failed", "canceled", "timeout", "dependency", "invalid")
        ),
        (("refused", "Unit x.slice is masked."), r"refuses StartUnit .*: Unit x\.slice is masked"),
        (("closed", ""), "does not answer"),
    ],
)
def test_a_job_that_did_not_end_well_is_an_error(
    path: Path, serve: Serve, answer: Answer, says: str
) -> None:
    serve(answer)
    with pytest.raises(HostError, match=says), connected(path) as manager:
        manager.start(UNIT)


def test_a_user_who_is_not_believed_is_told(path: Path, serve: Serve) -> None:
    serve(("done", "")).greeting = b"REJECTED EXTERNAL\r\n"
    with pytest.raises(HostError, match="refuses this user: REJECTED"), connected(path):
        pass


def test_without_a_socket_there_is_no_connection(path: Path) -> None:
    with pytest.raises(HostError, match="does not answer"), connected(path):
        pass


def test_an_unknown_property_is_not_guessed() -> None:
    with pytest.raises(ValueError, match="TasksMax"):
        to_properties(["TasksMax=5"])


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "s": TEXT,
    "b": st.integers(0, 1),
    "u": st.integers(0, 2**32 - 1),
    "t": st.integers(0, 2**64 - 1),
    "a(st)": st.lists(st.tuples(TEXT, st.integers(0, 2**64 - 1))),
    "a(sv)": st.lists(st.tuples(TEXT, st.tuples(st.just("au"), st.lists(st.integers(0, 9))))),
}


@given(st.lists(st.sampled_from(sorted(VALUES))), st.data())
def test_what_is_written_is_read(kinds: Sequence[str], data: st.DataObject) -> None:
    values = tuple(data.draw(VALUES[kind]) for kind in kinds)
    written = encode(SIGNAL, 1, {MEMBER: "x", SIGNATURE: "".join(kinds)}, values)
    found = decode(written)
    assert (found.fields[MEMBER], found.arguments()) == ("x", values)
    assert list(types_of("".join(kinds))) == list(kinds)


def test_the_other_byte_order_is_read() -> None:
    fields = struct.pack(">BB2sI2s", 8, 1, b"g\0", 0x01750000, b"")[:7]
    header = struct.pack(">BBBBIII", ord("B"), 4, 0, 1, 4, 1, len(fields)) + fields
    message = header + bytes(-len(header) % 8) + struct.pack(">I", 258)
    assert decode(message).arguments() == (258,)
