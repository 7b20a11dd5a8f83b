"""Verify on a fake machine: every state of a requested limit, every kind of target."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pagecage.errors import PagecageError
from pagecage.model.json_codec import Json
from pagecage.units import GIB
from pagecage.verify.main import conclusion, lines
from pagecage.verify.target import Subject
from pagecage.verify.verification import Verification, verify
from tests.builders.verified import (
    EVERY_HIERARCHY,
    PARTITION,
    PID,
    SCOPE,
    SLICE,
    UNIT,
    VDA,
    VDB,
    VerifiedMachine,
    states,
    throttled,
)


def sentences(found: Verification) -> list[str]:
    return [one.sentence(found.kernel) for one in found.comparisons]


def verify_unit(machine: VerifiedMachine, name: str = "web.service") -> Verification:
    return verify(Subject(unit=name), 0, machine.kernel)


def verify_container(machine: VerifiedMachine, **host_config: Any) -> Verification:
    machine.container(PID, **host_config)
    return verify(Subject(container="orders-db"), 0, machine.kernel)


@EVERY_HIERARCHY
def test_of_all_ancestors_the_tightest_is_in_force(machine: VerifiedMachine) -> None:
    above = f"{VDB} rbps=max wbps=max riops=900 wiops=max"
    machine.cgroup(SLICE, memory__max=str(GIB), io__max=above)
    own = f"{VDB} rbps=20000000 wbps=max riops=1000 wiops=max"
    limits = {"memory__max": str(2 * GIB), "cpu__max": "150000 100000", "io__max": own}
    machine.cgroup(UNIT, (PID,), **limits)
    machine.unit(UNIT, MemoryMax=str(2 * GIB), CPUQuotaPerSecUSec="1.5s")
    machine.unit(SLICE, MemoryMax=str(GIB))
    found = verify_unit(machine)
    effective = {limit.name: (limit.value, limit.file.parent.name) for limit in found.effective}
    is_flat = machine.hierarchy != "v2"  # blk-throttle of version 1
    assert effective == {
        "MemoryMax": (GIB, SLICE),
        "CPUQuota": (150, "web.service"),
        "IOReadIOPSMax": (1000, "web.service") if is_flat else (900, SLICE),
        "IOReadBandwidthMax": (20_000_000, "web.service"),
    }
    assert len(found.limits) == (5 if is_flat else 6)
    assert sentences(found) == [
        f"MemoryMax: 2 GiB asked by web.service, in force: 1 GiB, set on {SLICE}",
        "CPUQuota: 150 % asked by web.service, in force: 150 %",
        f"MemoryMax: 1 GiB asked by {SLICE}, in force: 1 GiB",
    ]
    assert not found.failed


def test_dockers_lost_flags_are_named(machine: VerifiedMachine) -> None:
    machine.cgroup(SCOPE, (PID,), memory__max=str(2 * GIB), memory__swap__max="0")
    reads, writes = throttled("/dev/vdb", 500), throttled("/dev/vdb", 20_000_000)
    limits = {"BlkioDeviceReadIOps": reads, "BlkioDeviceWriteBps": writes}
    found = verify_container(machine, Memory=2 * GIB, MemorySwap=2 * GIB, **limits)
    assert found.failed
    assert sentences(found) == [
        "MemoryMax: 2 GiB asked by Docker, in force: 2 GiB",
        "MemorySwapMax: 0 B asked by Docker, in force: 0 B",
        "IOWriteBandwidthMax of /dev/vdb: 20 MB/s asked by Docker, in force: none: LOST"
        " (the container's io.max has no such limit)",
        "IOReadIOPSMax of /dev/vdb: 500 asked by Docker, in force: none: LOST"
        " (the container's io.max has no such limit)",
    ]
    says = "IOWriteBandwidthMax, IOReadIOPSMax are not in force as asked for."
    assert conclusion(found) == says


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("/dev/vdb1", "/dev/vdb1 is a partition, and the kernel limits whole disks"),
        ("/dev/vdz", "there is no disk /dev/vdz on this machine"),
        ("/nowhere/data", "there is no disk /nowhere/data on this machine"),
    ],
)
def test_a_device_that_takes_no_limit(machine: VerifiedMachine, device: str, reason: str) -> None:
    machine.cgroup(SCOPE, (PID,))
    found = verify_container(machine, BlkioDeviceReadIOps=throttled(device, 500))
    assert states(found) == {"IOReadIOPSMax": "lost"}
    assert found.comparisons[0].reason == reason


@EVERY_HIERARCHY
def test_systemd_limits_the_whole_disk_of_a_partition_and_of_a_path(
    machine: VerifiedMachine,
) -> None:
    limit = "rbps=max wbps=max riops=500 wiops=max"
    machine.cgroup(UNIT, (PID,), io__max=f"{VDB} {limit}\n{VDA} {limit}")
    machine.unit(UNIT, IOReadIOPSMax="/dev/vdb1 500\nIOReadIOPSMax=/var 500")
    assert [one.state for one in verify_unit(machine).comparisons] == ["in_force", "in_force"]


@EVERY_HIERARCHY
def test_a_limit_on_one_disk_is_none_on_another(machine: VerifiedMachine) -> None:
    machine.cgroup(UNIT, (PID,), io__max=f"{VDA} rbps=max wbps=max riops=500 wiops=max")
    machine.unit(UNIT, IOReadIOPSMax="/dev/vdb 500")
    assert states(verify_unit(machine)) == {"IOReadIOPSMax": "lost"}


@EVERY_HIERARCHY
def test_a_controller_that_is_off_is_the_reason(machine: VerifiedMachine) -> None:
    machine.cgroup(UNIT, (PID,))
    name = machine.file("io.max")
    (machine.mounts.get("blkio", machine.mount) / UNIT / name).unlink()
    machine.unit(UNIT, IOReadIOPSMax="/dev/vdb 500")
    [one] = verify_unit(machine).comparisons
    assert one.reason == f"{name} of web.service is missing: the controller is not enabled there"


@EVERY_HIERARCHY
def test_a_looser_limit_than_asked_for_is_weaker(machine: VerifiedMachine) -> None:
    machine.cgroup(UNIT, (PID,), memory__max=str(4 * GIB), cpu__max="200000 100000")
    machine.unit(UNIT, MemoryMax=str(2 * GIB), CPUQuotaPerSecUSec="500ms", MemoryHigh="4096")
    found = verify_unit(machine)
    assert states(found) == {"MemoryMax": "weaker", "CPUQuota": "weaker", "MemoryHigh": "lost"}
    assert sentences(found)[0] == (
        "MemoryMax: 2 GiB asked by web.service, in force: 4 GiB: WEAKER"
        f" ({machine.file('memory.max')} of web.service was changed, or set by another)"
    )


@EVERY_HIERARCHY
@pytest.mark.parametrize(("asked", "kernels"), [("1000000000", "999997440"), ("65536", "65536")])
def test_the_kernel_rounds_memory_to_pages(
    machine: VerifiedMachine, asked: str, kernels: str
) -> None:
    machine.cgroup(UNIT, (PID,), memory__max=kernels)
    machine.unit(UNIT, MemoryMax=asked)
    assert states(verify_unit(machine)) == {"MemoryMax": "in_force"}


LIMITED = f"{VDB} rbps=max wbps=max riops=500 wiops=max"
USED = "rbytes={} wbytes=0 rios=9 wios=0 dbytes=0 dios=0"


@EVERY_HIERARCHY
@pytest.mark.parametrize(
    ("io_stat", "state"),
    [
        (f"{VDA} {USED.format(9 << 20)}", "elsewhere"),
        (f"{VDA} {USED.format(9 << 20)}\n{VDB} {USED.format(4096)}", "elsewhere"),
        (f"{VDA} {USED.format(9 << 20)}\n{VDB} {USED.format(1 << 20)}", "in_force"),
        (f"{VDA} {USED.format(4096)}", "in_force"),
        ("", "in_force"),
    ],
)
def test_a_limit_on_a_disk_without_the_data(
    machine: VerifiedMachine, io_stat: str, state: str
) -> None:
    machine.cgroup(UNIT, (PID,), io__max=LIMITED, io__stat=io_stat)
    machine.unit(UNIT, IOReadIOPSMax="/dev/vdb 500")
    found = verify_unit(machine)
    assert states(found) == {"IOReadIOPSMax": state}
    if state == "elsewhere":
        assert "500: WRONG DISK (its I/O, 9 MiB so far, is on vda," in sentences(found)[0]


@EVERY_HIERARCHY
def test_an_open_file_on_the_limited_disk_is_data_there(
    machine: VerifiedMachine, tmp_path: Path
) -> None:
    """The disk of the test's own files takes the part of vdb."""
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    place = machine.kernel.sys / "dev/block"
    (place / number).symlink_to((place / VDB).resolve())
    machine.cgroup(UNIT, (PID,), io__max=LIMITED, io__stat=f"{VDA} {USED.format(9 << 20)}")
    machine.unit(UNIT, IOReadIOPSMax="/dev/vdb 500")
    assert states(verify_unit(machine)) == {"IOReadIOPSMax": "elsewhere"}
    (tmp_path / "data").touch()
    (machine.kernel.proc / f"{PID}/fd/7").symlink_to(tmp_path / "data")
    assert states(verify_unit(machine)) == {"IOReadIOPSMax": "in_force"}


def test_open_files_that_may_not_be_read_prove_nothing(machine: VerifiedMachine) -> None:
    machine.cgroup(UNIT, (PID,), io__max=LIMITED, io__stat=f"{VDA} {USED.format(9 << 20)}")
    machine.unit(UNIT, IOReadIOPSMax="/dev/vdb 500")
    descriptors = machine.kernel.proc / f"{PID}/fd"
    descriptors.rmdir()
    descriptors.touch()
    found = verify_unit(machine)
    assert states(found) == {"IOReadIOPSMax": "in_force"}
    assert found.notes == (
        "The open files of another user's processes were not read; root may read them.",
    )


CLIENT = "/usr/bin/docker run --rm -it -m 64m --name orders-db --device-read-iops /dev/vdb:{} img"


@EVERY_HIERARCHY
def test_a_limit_that_dockers_command_line_dropped(machine: VerifiedMachine) -> None:
    """The engine has an empty list then, and the client of the container has the option still."""
    machine.cgroup(SCOPE, (PID,))
    machine.process(9, "/shell", "docker", CLIENT.format(500).split())
    found = verify_container(machine, BlkioDeviceReadIOps=[])
    assert states(found) == {"IOReadIOPSMax": "lost"}
    assert "IOReadIOPSMax of /dev/vdb: 500 asked by Docker" in sentences(found)[0]
    assert "knows of no I/O limit" not in "".join(found.notes)
    of_both = verify_container(machine, BlkioDeviceReadIOps=throttled("/dev/vdb", 700))
    assert [one.requested.value for one in of_both.comparisons] == [700]


def test_a_container_without_io_limits_may_have_lost_them(machine: VerifiedMachine) -> None:
    machine.cgroup(SCOPE, (PID,))
    [note] = verify_container(machine).notes
    assert "Its command line (26.1.5) was seen to drop them" in note
    assert "--expect 'IOReadIOPSMax=/dev/vdb 500'" in note


def expect(machine: VerifiedMachine, *texts: str) -> Verification:
    return verify(Subject(pid=PID), 0, machine.kernel, texts)


@EVERY_HIERARCHY
def test_limits_that_the_user_expects(machine: VerifiedMachine) -> None:
    machine.cgroup(UNIT, (PID,), memory__max=str(2 * GIB), cpu__max="50000 100000")
    machine.unit(UNIT)
    found = expect(machine, "MemoryMax=2G", "CPUQuota=20%", "IOReadIOPSMax = /dev/vdb 500")
    assert [one.sentence(machine.kernel).partition(" (")[0] for one in found.comparisons] == [
        "MemoryMax: 2 GiB asked by --expect, in force: 2 GiB",
        "CPUQuota: 20 % asked by --expect, in force: 50 %: WEAKER",
        "IOReadIOPSMax of /dev/vdb: 500 asked by --expect, in force: none: LOST",
    ]


@pytest.mark.parametrize(
    "text",
    ["", "MemoryMax", "MemoryMax=", "MemoryMax=much", "MemoryMax=50%", "IOReadIOPSMax=500", "A=1"],
)
def test_an_expected_limit_that_is_none(machine: VerifiedMachine, text: str) -> None:
    machine.cgroup(UNIT, (PID,))
    with pytest.raises(PagecageError) as caught:
        expect(machine, text)
    assert caught.value.message == f"--expect: {text!r} is not a limit"


def test_the_page_names_the_files(machine: VerifiedMachine) -> None:
    above = machine.cgroup(SLICE, memory__max=str(2 * GIB))
    cgroup = machine.cgroup(UNIT, (PID,), io__max=LIMITED, io__stat=f"{VDA} {USED.format(9 << 20)}")
    machine.unit(UNIT, MemoryMax=str(2 * GIB))
    assert list(lines(verify_unit(machine))) == [
        f"unit web.service: 1 process in {cgroup}",
        "",
        "limit          disk  in force  from",
        "IOReadIOPSMax  vdb        500  io.max",
        f"MemoryMax      -        2 GiB  {above}/memory.max",
        "no limit: IOReadBandwidthMax, IOWriteBandwidthMax, IOWriteIOPSMax, MemoryHigh,"
        " MemorySwapMax, CPUQuota",
        "no I/O limit on vda, with 9 MiB of I/O so far",
        "",
        "Asked for",
        "  MemoryMax: 2 GiB asked by web.service, in force: 2 GiB",
        "",
        "Every limit that is known to have been asked for is in force.",
    ]


@EVERY_HIERARCHY
def test_json_has_every_limit_and_its_place(machine: VerifiedMachine) -> None:
    machine.cgroup(SLICE, memory__max=str(4 * GIB))
    machine.cgroup(UNIT, (PID,), memory__max=str(2 * GIB))
    machine.unit(UNIT)
    found: Json = verify_unit(machine).to_json()
    limits = [(one["value"], one["effective"]) for one in found["limits"]]
    assert limits == [(2 * GIB, True), (4 * GIB, False)]
    assert found["type"] == "verification"


def test_a_partitions_number_is_no_limit(machine: VerifiedMachine) -> None:
    """The kernel refuses io.max on it, so nothing here may take one for the other."""
    machine.cgroup(SCOPE, (PID,), io__max=f"{PARTITION} rbps=max wbps=max riops=500 wiops=max")
    found = verify_container(machine, BlkioDeviceWriteIOps=throttled("/dev/vdb", 5))
    assert states(found) == {"IOWriteIOPSMax": "lost"}
