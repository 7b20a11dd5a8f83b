"""Verify where controllers are on cgroup v1: its places, its files, and what it hides."""

from __future__ import annotations

from functools import partial
from shutil import rmtree

import pytest

from pagecage.errors import PagecageError
from pagecage.linux import cgroup as cgroups
from pagecage.model.json_codec import Json
from pagecage.units import GIB
from pagecage.verify import verification
from pagecage.verify.main import lines
from pagecage.verify.target import Subject
from pagecage.verify.verification import Verification, verify, watch
from tests.builders.verified import (
    CONTAINER_ID,
    ON_VERSION_1,
    PID,
    SLICE,
    UNIT,
    VDB,
    VerifiedMachine,
    states,
    throttled,
)

DOCKER = f"docker/{CONTAINER_ID}"
READS = f"{VDB} rbps=max wbps=max riops=500 wiops=max"
HIDDEN = (
    "Memory is controlled by cgroup v1, which has no MemoryHigh, and counts neither reclaim nor the"
    " times that a limit on swap was met.",
    "I/O is controlled by cgroup v1, which may count no I/O on a disk that never had a limit.",
)
UNPRESSED = (
    "The program has no cgroup of its own in version 2, where pressure is counted, so a limit"
    " counts as binding only where it is nearly full."
)


def verify_pid(machine: VerifiedMachine, *expected: str, seconds: float = 0) -> Verification:
    return verify(Subject(pid=PID), seconds, machine.kernel, expected)


def sentences(found: Verification) -> list[str]:
    return [one.sentence(found.kernel) for one in found.comparisons]


@ON_VERSION_1
def test_the_page_names_the_files_of_each_hierarchy(machine: VerifiedMachine) -> None:
    machine.cgroup(SLICE, memory__max=str(2 * GIB), memory__swap__max="0")
    own = machine.cgroup(UNIT, (PID,), io__max=READS, cpu__max="50000 100000")
    machine.unit(UNIT)
    at = machine.root / "cgroup"
    page = list(lines(verify_pid(machine)))
    assert page[:7] == [
        f"process {PID} (postgres): 1 process in {own}",
        "",
        "limit          disk  in force  from",
        f"IOReadIOPSMax  vdb        500  {at}/blkio/{UNIT}/blkio.throttle.read_iops_device",
        f"MemoryMax      -        2 GiB  {at}/memory/{SLICE}/memory.limit_in_bytes",
        f"MemorySwapMax  -          0 B  {at}/memory/{SLICE}/memory.memsw.limit_in_bytes",
        f"CPUQuota       -         50 %  {at}/cpu/{UNIT}/cpu.cfs_quota_us",
    ]


@ON_VERSION_1
def test_what_version_1_hides_is_a_note(machine: VerifiedMachine) -> None:
    machine.cgroup(UNIT, (PID,), io__max=f"{VDB} rbps=max wbps=9 riops=max wiops=max")
    machine.unit(UNIT)
    buffered = (
        "IOWriteBandwidthMax does not hold buffered writes back: in cgroup v1 the kernel's flusher"
        " writes them, outside of the cgroup."
    )
    no_pressure = (UNPRESSED,) if machine.hierarchy == "v1" else ()
    assert verify_pid(machine).notes == (*HIDDEN, buffered, *no_pressure)


@pytest.mark.parametrize("machine", ["v1"], indirect=True)
@pytest.mark.parametrize(("refaults", "is_known"), [("workingset_refault_file 3\n", True), ("", 0)])
def test_a_memory_limit_of_unknown_cost_is_a_note(
    machine: VerifiedMachine, refaults: str, is_known: bool
) -> None:
    machine.cgroup(UNIT, (PID,), memory__max=str(GIB), memory__stat=f"anon 1\n{refaults}")
    machine.unit(UNIT)
    told = [note for note in verify_pid(machine).notes if "what the memory limit costs" in note]
    assert len(told) == (0 if is_known else 1)


@ON_VERSION_1
def test_a_limit_on_io_that_was_asked_for_a_parent_does_not_hold(machine: VerifiedMachine) -> None:
    machine.cgroup(SLICE, io__max=READS, memory__max=str(GIB))
    machine.cgroup(UNIT, (PID,))
    machine.unit(UNIT)
    machine.unit(SLICE, IOReadIOPSMax="/dev/vdb 500", MemoryMax=str(GIB))
    found = verify_pid(machine)
    assert states(found) == {"IOReadIOPSMax": "lost", "MemoryMax": "in_force"}
    assert sentences(found)[1].endswith(
        "LOST (cgroup v1 does not hold limits on I/O below the group that has them)"
    )


@ON_VERSION_1
def test_limits_that_version_1_does_not_have(
    machine: VerifiedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.cgroup(UNIT, (PID,))
    (machine.mounts["memory"] / UNIT / "memory.memsw.limit_in_bytes").unlink()
    monkeypatch.setattr(cgroups, "PROC", machine.kernel.proc)
    (machine.kernel.proc / "swaps").write_text("Filename\n/swap\n")
    machine.unit(UNIT, MemoryHigh="4096", IOReadIOPSMax="/dev/vdb 500", MemorySwapMax="0")
    assert sorted(one.reason for one in verify_pid(machine).comparisons) == [
        "blkio.throttle.read_iops_device of web.service has no such limit",
        "cgroup v1 has no memory.high",
        "the kernel does not count swap (swapaccount=1 on its command line)",
    ]


@ON_VERSION_1
def test_a_unit_that_has_a_group_in_some_hierarchies_alone(machine: VerifiedMachine) -> None:
    """The processes are then in the nearest group above, and another unit's do not count."""
    machine.cgroup(f"{SLICE}/other.service", (7, 8))
    machine.cgroup(SLICE, memory__max=str(GIB), io__max=READS)
    machine.cgroup(UNIT, (PID,), cpu__max="50000 100000")
    for name in ("memory", "blkio"):
        rmtree(machine.mounts[name] / UNIT)
    machine.unit(UNIT, MemoryMax=str(2 * GIB), CPUQuotaPerSecUSec="500ms")
    found = verify(Subject(unit="web.service"), 0, machine.kernel)
    assert found.processes == 1
    assert states(found) == {"MemoryMax": "tighter", "CPUQuota": "in_force"}
    assert [limit.name for limit in found.effective] == ["IOReadIOPSMax", "MemoryMax", "CPUQuota"]
    lost = verify(Subject(unit="web.service"), 0, machine.kernel, ["IOReadIOPSMax=/dev/vdb 5"])
    says = "is missing: the controller is not enabled there"
    reason = f"blkio.throttle.read_iops_device of web.service {says}"
    assert lost.comparisons[-1].reason == reason


@ON_VERSION_1
def test_a_unit_of_systemds_hierarchy_alone_ends(
    machine: VerifiedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As any unit without limits before systemd 238."""
    machine.cgroup("web.service", (PID,))
    machine.unit("web.service")
    for name, mount in machine.mounts.items():
        if name != "name=systemd":
            rmtree(mount / "web.service")

    def end(_: float) -> None:
        rmtree(machine.mount / "web.service", ignore_errors=True)

    subject = Subject(unit="web.service")
    assert not verify(subject, 0.1, machine.kernel).watched.ended
    monkeypatch.setattr(verification, "watch", partial(watch, sleep=end))
    found = verify(subject, 5, machine.kernel)
    assert (found.processes, found.watched.ended) == (1, True)


@pytest.mark.parametrize("machine", ["hybrid"], indirect=True)
def test_a_controller_of_the_unified_hierarchy_has_its_group_there(
    machine: VerifiedMachine,
) -> None:
    """Even if that is the engine's own group."""
    engine = "system.slice/containerd.service"
    machine.cgroup(engine)
    machine.cgroup(DOCKER, (PID,))
    machine.enter(PID, {**dict.fromkeys(machine.mounts, f"/{DOCKER}"), "unified": f"/{engine}"})
    unified = machine.mounts["unified"]
    (unified / engine / "cpu.max").write_text("50000 100000\n")
    assert verify_pid(machine).effective == ()
    (machine.mounts["cpu"] / "cgroup.procs").unlink()
    assert [one.file for one in verify_pid(machine).effective] == [unified / engine / "cpu.max"]


@ON_VERSION_1
def test_a_container_is_in_the_engines_own_group_of_the_unified_hierarchy(
    machine: VerifiedMachine,
) -> None:
    """Its pressure is that of all containers then, and is not read."""
    machine.cgroup("system.slice/containerd.service", (9,))
    machine.cgroup(DOCKER, (PID,), memory__max=str(GIB), memory__swap__max="0", io__max=READS)
    paths = dict.fromkeys(machine.mounts, f"/{DOCKER}")
    if machine.hierarchy == "hybrid":
        paths["unified"] = "/system.slice/containerd.service"
    machine.enter(PID, paths)
    limit = throttled("/dev/vdb", 500)
    machine.container(PID, Memory=GIB, MemorySwap=GIB, BlkioDeviceReadIOps=limit, NanoCpus=10**9)
    found = verify(Subject(container="orders-db"), 0, machine.kernel)
    assert found.target.directory == machine.mount / DOCKER
    held = dict.fromkeys(("MemoryMax", "MemorySwapMax", "IOReadIOPSMax"), "in_force")
    assert states(found) == {**held, "CPUQuota": "lost"}
    assert "LOST (the container's cpu.cfs_quota_us has no such limit)" in "".join(sentences(found))
    assert found.notes == (*HIDDEN, UNPRESSED, *found.notes[3:])


@ON_VERSION_1
def test_a_parent_that_closes_swap_by_its_swappiness_closes_its_own_alone(
    machine: VerifiedMachine,
) -> None:
    machine.cgroup(SLICE)
    machine.cgroup(UNIT, (PID,))
    machine.unit(UNIT)
    for path, count in ((SLICE, 0), (UNIT, 1)):
        (machine.mounts["memory"] / path / "memory.swappiness").write_text("0\n")
        assert len(verify_pid(machine).limits) == count


@ON_VERSION_1
def test_a_process_with_another_path_in_each_hierarchy(machine: VerifiedMachine) -> None:
    """As below a supervisor that has a group for memory alone: the name is the same."""
    machine.cgroup("supervisor", memory__max=str(GIB))
    machine.cgroup("supervisor/trial", memory__max=str(2 * GIB), io__max=READS)
    machine.cgroup("trial", (PID,), memory__max="4096", io__max=READS)
    paths = dict.fromkeys(machine.mounts, "/trial")
    machine.enter(PID, {**paths, "memory": "/supervisor/trial", "name=systemd": "/"})
    found = verify_pid(machine, "MemoryMax=1G", "IOReadIOPSMax=/dev/vdb 500")
    assert found.target.directory == machine.mounts["memory"] / "supervisor/trial"
    effective = [(one.name, one.value) for one in found.effective]
    assert effective == [("IOReadIOPSMax", 500), ("MemoryMax", GIB)]
    assert states(found) == {"MemoryMax": "in_force", "IOReadIOPSMax": "in_force"}
    assert (UNPRESSED in found.notes) is (machine.hierarchy == "v1")


@ON_VERSION_1
def test_counters_of_a_real_root_are_not_the_programs(machine: VerifiedMachine) -> None:
    """Of the roots, that of blkio alone may have limits."""
    used = f"{VDB} rbytes=99 wbytes=0 rios=9 wios=0"
    machine.cgroup("", (PID,), io__stat=used, io__max=READS)
    if machine.hierarchy == "hybrid":
        (machine.mounts["unified"] / "cgroup.type").unlink()
    found = verify_pid(machine, "MemoryMax=1G", "IOReadIOPSMax=/dev/vdb 500", seconds=0.1)
    assert states(found) == {"MemoryMax": "lost", "IOReadIOPSMax": "in_force"}
    assert found.used_bytes == {}
    assert not found.watched.ended
    assert UNPRESSED in found.notes
    assert "The program is in the root of blkio" in found.notes[2]


@ON_VERSION_1
def test_a_container_without_a_namespace_of_its_own(machine: VerifiedMachine) -> None:
    """The engine mounts the container's group, and processes show the host's paths."""
    machine.mounted("/docker/own")
    for name, place in machine.mounts.items():
        (place / "release_agent").unlink(missing_ok=True)
        if name == "memory":
            (place / "memory.limit_in_bytes").write_text(f"{GIB}\n")
    machine.cgroup("below", (PID,))
    machine.enter(PID, dict.fromkeys(machine.mounts, "/docker/own/below"))
    found = verify_pid(machine)
    assert [(one.name, one.value) for one in found.effective] == [("MemoryMax", GIB)]
    assert found.notes[0] == (
        f"This process is in a container: limits of the cgroups above {machine.mount} are hidden."
    )
    machine.enter(PID, dict.fromkeys(machine.mounts, "/docker/other"))
    with pytest.raises(PagecageError, match="outside of this cgroup namespace"):
        verify_pid(machine)


@ON_VERSION_1
def test_a_limit_on_swap_is_not_counted(machine: VerifiedMachine) -> None:
    machine.cgroup(UNIT, (PID,), memory__max=str(GIB), memory__swap__max="0")
    machine.unit(UNIT)
    found = verify_pid(machine, seconds=0.1)
    assert "  MemorySwapMax is not counted by this kernel" in list(lines(found))
    data: Json = found.to_json()
    assert {use["name"]: use["hits"] for use in data["bound"]} == {
        "MemoryMax": 0,
        "MemorySwapMax": None,
    }
