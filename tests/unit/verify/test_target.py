"""Targets of a verification: units, containers and processes, and what clients typed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagecage.errors import EXIT_HOST, EXIT_USAGE, PagecageError
from pagecage.importers.result import BlockLimit
from pagecage.importers.systemd import shown_properties
from pagecage.linux.cgroup import Cgroup
from pagecage.units import GIB
from pagecage.verify import target
from pagecage.verify.comparison import (
    LimitInForce,
    limits_of,
    requested_of_container,
    requested_of_unit,
    shown_value,
    tightest,
)
from pagecage.verify.kernel import written_device
from pagecage.verify.target import (
    InspectedContainer,
    Subject,
    _blocks,
    container_id,
    manager_uid,
    run_options,
    typed_limits,
    unit_of,
)
from pagecage.verify.verification import verify
from tests.builders.verified import (
    CONTAINER_ID,
    EVERY_HIERARCHY,
    PID,
    SCOPE,
    UNIT,
    VDA,
    VDB,
    VerifiedMachine,
    states,
)


@EVERY_HIERARCHY
def test_a_process_in_a_container_brings_the_containers_limits(machine: VerifiedMachine) -> None:
    machine.cgroup(SCOPE, (PID,))
    machine.container(PID, Memory=GIB)
    found = verify(Subject(pid=PID), 0, machine.kernel)
    assert states(found) == {"MemoryMax": "lost", "MemorySwapMax": "lost"}
    assert found.target.description == f"process {PID} (postgres)"


def test_a_container_that_the_engine_hides_is_a_note(machine: VerifiedMachine) -> None:
    machine.cgroup(SCOPE, (PID,))
    says = "permission denied while trying to connect to the Docker daemon socket"
    machine.answer("docker", f"{CONTAINER_ID}.fails", f"{says}\n")
    [note] = verify(Subject(pid=PID), 0, machine.kernel).notes
    given = f"What the container {CONTAINER_ID[:12]} was given is unknown"
    assert note == f"{given}: Docker does not answer: {says}."


@EVERY_HIERARCHY
def test_units_of_ones_own_systemd(machine: VerifiedMachine) -> None:
    path = f"user.slice/user@{os.getuid()}.service/app.slice/web.service"
    machine.cgroup(path, (PID,))
    machine.unit(path, user=True, MemoryMax="4096")
    # The manager itself answers for its units by the last word.
    machine.answer("systemctl", "app.slice", "")
    found = verify(Subject(unit="web.service", user=True), 0, machine.kernel)
    assert found.target.directory == machine.mount / path


def test_units_of_another_users_systemd_are_a_note(machine: VerifiedMachine) -> None:
    path = "user.slice/user@99999.service/app.slice/web.service"
    machine.cgroup(path, (PID,))
    found = verify(Subject(pid=PID), 0, machine.kernel)
    assert found.notes == (
        "The units of user 99999's own systemd were not asked; that user may ask.",
    )


def test_a_cgroup_namespace_is_a_note(machine: VerifiedMachine) -> None:
    namespace = machine.kernel.proc / "self/ns/cgroup"
    namespace.unlink()
    namespace.symlink_to("cgroup:[4026532999]")
    machine.cgroup("", memory__max=str(GIB))
    machine.process(PID, "/")
    found = verify(Subject(pid=PID), 0, machine.kernel)
    assert [limit.name for limit in found.effective] == ["MemoryMax"]
    [note] = found.notes
    assert note.startswith("This process is in a cgroup namespace: limits of the cgroups above")


def test_a_containers_own_limits_are_those_of_its_mount_point(machine: VerifiedMachine) -> None:
    machine.cgroup("", memory__max=str(GIB))
    machine.cgroup("init.scope", (PID,))
    found = verify(Subject(pid=PID), 0, machine.kernel)
    [limit] = found.effective
    assert (limit.name, limit.file) == ("MemoryMax", machine.mount / "memory.max")


def test_a_kernel_without_pressure_is_a_note(machine: VerifiedMachine) -> None:
    (machine.cgroup(UNIT, (PID,)) / "io.pressure").unlink()
    machine.unit(UNIT)
    [note] = verify(Subject(unit="web.service"), 0, machine.kernel).notes
    assert "psi=1" in note


def refusal(machine: VerifiedMachine, subject: Subject) -> PagecageError:
    with pytest.raises(PagecageError) as caught:
        verify(subject, 0, machine.kernel)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("subject", "says"),
    [
        (Subject(), "none of --unit, --container and --pid was given"),
        (Subject(unit="a", pid=1), "several of --unit, --container and --pid were given"),
        (Subject(pid=1, user=True), "--user applies only to --unit"),
        (Subject(unit=""), "--unit: '' is not a valid name"),
        (Subject(unit="a*"), "is not a valid name"),
        (Subject(container="a/b"), "--container: 'a/b' is not a valid name"),
        (Subject(pid=77), "there is no process 77"),
        (Subject(unit="nope.service"), "there is no unit 'nope.service'; a unit of your own"),
        (Subject(unit="nope", user=True), "there is no unit 'nope'"),
        (Subject(container="nope"), "there is no container 'nope'"),
    ],
)
def test_a_target_that_does_not_exist(
    machine: VerifiedMachine, subject: Subject, says: str
) -> None:
    found = refusal(machine, subject)
    assert says in found.message
    assert found.exit_code == EXIT_USAGE


def test_an_inactive_unit(machine: VerifiedMachine) -> None:
    shown = "Id=web.service\nLoadState=loaded\nActiveState=failed\n"
    machine.answer("systemctl", "web.service", shown)
    found = refusal(machine, Subject(unit="web.service"))
    says = "the unit web.service is failed and has no cgroup, so no limit is in force"
    assert found.message == says


def test_a_stopped_container(machine: VerifiedMachine) -> None:
    machine.container(0)
    found = refusal(machine, Subject(container="orders-db"))
    assert found.message == "the container 'orders-db' is not running"


@pytest.mark.parametrize(
    "answer", ["", "{", "[]", "5", '[{"State": 5}]', '[{"State": {"Pid": []}}]']
)
def test_an_engine_that_answers_something_else(machine: VerifiedMachine, answer: str) -> None:
    machine.answer("docker", "odd", answer)
    assert "printed no description" in refusal(machine, Subject(container="odd")).message


@pytest.mark.parametrize(
    "config",
    [
        {"Memory": "much"},
        {"NanoCpus": [1]},
        {"BlkioDeviceReadBps": [{"Path": "/dev/vdb", "Rate": "z"}]},
    ],
)
def test_limits_of_another_kind(machine: VerifiedMachine, config: dict[str, Any]) -> None:
    machine.cgroup(SCOPE, (PID,))
    machine.container(PID, **config)
    found = verify(Subject(container="orders-db"), 0, machine.kernel)
    assert "cannot be read" in found.notes[0]


def test_a_machine_without_controllers_is_refused(machine: VerifiedMachine) -> None:
    (machine.mount / "cgroup.controllers").write_text("hugetlb\n")
    found = refusal(machine, Subject(pid=PID))
    assert found.exit_code == EXIT_HOST
    assert found.message.startswith("no cgroup hierarchy with the controllers memory and io is")


def test_a_missing_controller_is_a_note(machine: VerifiedMachine) -> None:
    (machine.mount / "cgroup.controllers").write_text("cpu memory\n")
    machine.cgroup(UNIT, (PID,))
    assert verify(Subject(pid=PID), 0, machine.kernel).notes == (
        "No hierarchy that is mounted here has the controller io.",
    )


@EVERY_HIERARCHY
def test_a_zombie_has_ended(machine: VerifiedMachine) -> None:
    machine.cgroup(UNIT, (PID,))
    stat = machine.kernel.proc / f"{PID}/stat"
    stat.write_text(stat.read_text().replace(") S ", ") Z "))
    assert f"there is no process {PID}" in refusal(machine, Subject(pid=PID)).message


@EVERY_HIERARCHY
def test_a_process_outside_of_the_namespace(machine: VerifiedMachine) -> None:
    """A directory beside the mount point is not its cgroup."""
    machine.process(PID, "/../other")
    (machine.root / "other").mkdir()
    assert "outside of this cgroup namespace" in refusal(machine, Subject(pid=PID)).message


def test_without_the_tools_a_process_can_still_be_named(
    machine: VerifiedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "find_tool", lambda _: None)
    assert refusal(machine, Subject(container="a")).hint == "name a process: --pid N"
    assert refusal(machine, Subject(unit="a")).hint == "name a process: --pid N"


SAME_MACHINE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
FILES = ("memory.max", "memory.high", "memory.swap.max", "cpu.max", "io.max")
RATES = st.integers(1, 2**63)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ("Memory", "MemorySwap", "NanoCpus", "CpuQuota", "CpuPeriod", "BlkioDeviceReadBps")
)
PROPERTIES = st.sampled_from(
    ("MemoryMax", "MemoryHigh", "MemorySwapMax", "CPUQuotaPerSecUSec", "IOReadIOPSMax", "Id")
)
VALUES = st.text(max_size=12) | st.integers().map(str) | st.integers().map("/dev/vdb {}".format)


@SAME_MACHINE
@given(texts=st.tuples(*(st.text(max_size=30) for _ in FILES)))
def test_any_text_is_read(tmp_path: Path, texts: tuple[str, ...]) -> None:
    for name, text in zip(FILES, texts, strict=True):
        (tmp_path / name).write_text(text, errors="replace")
    for limit in limits_of(Cgroup(unified=tmp_path)):
        assert limit.value >= 0
        assert shown_value(limit.name, limit.value)


@SAME_MACHINE
@given(rbps=RATES | st.none(), wiops=RATES | st.none(), memory=RATES, quota=RATES)
def test_what_the_kernel_writes_is_what_is_read(
    tmp_path: Path, rbps: int | None, wiops: int | None, memory: int, quota: int
) -> None:
    limits = f"rbps={rbps or 'max'} wbps=max riops=max wiops={wiops or 'max'}"
    (tmp_path / "io.max").write_text(f"{VDA} {limits}\n")
    (tmp_path / "memory.max").write_text(f"{memory}\n")
    (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    found = {limit.name: limit.value for limit in limits_of(Cgroup(unified=tmp_path))}
    expected = {"IOReadBandwidthMax": rbps, "IOWriteIOPSMax": wiops, "MemoryMax": memory}
    expected = {name: value for name, value in expected.items() if value is not None}
    assert found == {**expected, "CPUQuota": 100 * quota / 100000}


@given(values=st.lists(st.tuples(st.sampled_from((VDA, VDB)), RATES)))
def test_the_tightest_of_each_disk(values: list[tuple[str, int]]) -> None:
    limits = [
        LimitInForce("IOReadIOPSMax", value, Cgroup(unified=Path(str(n))), Path("io.max"), disk)
        for n, (disk, value) in enumerate(values)
    ]
    found = {limit.maj_min: limit for limit in tightest(limits)}
    for disk, limit in found.items():
        same = [one for one in limits if one.maj_min == disk]
        assert limit == min(same, key=lambda one: one.value)
    assert found.keys() == {disk for disk, _ in values}


@given(config=st.dictionaries(KEYS, JSON, max_size=4))
def test_any_answer_of_an_engine(config: dict[str, object]) -> None:
    container = InspectedContainer("docker", "it", 1, config)
    with suppress(PagecageError):
        for one in requested_of_container(container, Cgroup()):
            assert one.value >= 0


@given(pairs=st.lists(st.tuples(PROPERTIES, VALUES), max_size=5))
def test_any_answer_of_systemctl(pairs: list[tuple[str, str]]) -> None:
    for lines in _blocks("\n".join(f"{key}={value}" for key, value in pairs)):
        with suppress(PagecageError):
            for one in requested_of_unit(shown_properties(lines), Cgroup(), "a.service"):
                assert one.value >= 0


@SAME_MACHINE
@given(path=st.text(max_size=20).map(lambda text: f"/{text}"))
def test_any_path_of_a_device(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    machine = VerifiedMachine(tmp_path_factory.mktemp("machine"))
    machine.make()
    found = written_device(path, machine.kernel)
    assert bool(found.disks) or bool(found.problem)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (f"docker-{'a' * 64}.scope", "a" * 64),
        (f"libpod-{'0' * 64}.scope", "0" * 64),
        ("b" * 64, "b" * 64),
        (f"libpod-conmon-{'0' * 64}.scope", None),
        (f"docker-{'a' * 63}.scope", None),
        ("web.service", None),
    ],
)
def test_containers_are_known_by_their_cgroup(name: str, found: str | None) -> None:
    assert container_id(Path("/cgroup/system.slice", name)) == found


@pytest.mark.parametrize(
    ("path", "unit", "uid"),
    [
        ("system.slice/web.service", "web.service", None),
        ("user.slice/user-1000.slice/user@1000.service", "user@1000.service", None),
        ("user.slice/user-1000.slice/user@1000.service/app.slice", "app.slice", 1000),
        ("system.slice/docker-a.scope/init", None, None),
    ],
)
def test_units_are_known_by_their_cgroup(path: str, unit: str | None, uid: int | None) -> None:
    assert unit_of(Path("/sys/fs/cgroup", path)) == unit
    assert manager_uid(Path("/sys/fs/cgroup", path)) == uid


WORDS = st.lists(st.sampled_from(["docker", "run", "--name", "a", "-it", "-v", "--", "--rm"]))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("docker run --rm --name a img", [("--name", "a")]),
        ("docker run --name=a img --name b", [("--name", "a")]),
        ("docker container run -dit -v /a:/b --name a img", [("--name", "a")]),
        ("docker run -v/a:/b -p 80:80 -m 5g --name a", [("--name", "a")]),
        ("podman run --replace --name a img", [("--name", "a")]),
        ("docker run -- --name a", []),
        ("docker ps --name a", []),
        ("runner run --name a", []),
        ("docker run --name", [("--name", "")]),
        ("", []),
    ],
)
def test_options_end_at_the_image(line: str, found: list[tuple[str, str]]) -> None:
    options = [option for option in run_options(line.split()) if option[0] == "--name"]
    assert options == found


@given(words=WORDS)
def test_any_arguments(words: list[str]) -> None:
    assert all(option.startswith("-") for option, _ in run_options(words))


def test_limits_of_one_container_alone(machine: VerifiedMachine) -> None:
    line = "docker run --name {} --device-write-bps=/dev/vdb:{} --device-read-iops {} img"
    machine.process(8, "/", argv=line.format("one", "20m", "/dev/vda:9").split())
    machine.process(9, "/", argv=line.format("two", "1g", "x").split())
    assert typed_limits("one", machine.kernel) == [
        BlockLimit("IOWriteBandwidthMax", "/dev/vdb", 20 << 20, "--device-write-bps /dev/vdb:20m"),
        BlockLimit("IOReadIOPSMax", "/dev/vda", 9, "--device-read-iops /dev/vda:9"),
    ]
    assert len(typed_limits("two", machine.kernel)) == 1
    assert typed_limits("three", machine.kernel) == []
