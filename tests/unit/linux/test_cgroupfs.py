"""Cgroups of trials made by their files: commands, notes, obstacles, and the real kernel."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pagecage.errors import HostError
from pagecage.linux import cgroup as cgroups
from pagecage.linux import cgroupfs
from pagecage.linux.block_device import Disk, resolve_disk
from pagecage.linux.cgroup import Cgroup, ancestors, members, outside
from pagecage.linux.cgroup_files import read_counters, read_limits
from pagecage.linux.cgroupfs import Cgroupfs, Place, find_place
from pagecage.model.cage import Cage, expected_read_back, limits_not_in_force
from pagecage.process import run, spawn
from pagecage.units import MIB
from tests.builders.waiting import wait_until

UNIT = "pagecage-r1_x.1.slice"
DISK = Disk("vdb", "254:16", "/dev/vdb", "ext4", "/")
LIMITS = {
    "MemoryMax": 32 * MIB,
    "MemorySwapMax": 0,
    "IOReadBandwidthMax": 20_000_000,
    "IOReadIOPSMax": 500,
    "CPUQuota": 50,
}
V1 = ("memory", "blkio", "cpu")


def tree(tmp_path: Path, *names: str) -> Cgroup:
    places = {name: tmp_path / name for name in names}
    for place in places.values():
        place.mkdir(parents=True)
        (place / "cgroup.procs").touch()
    return Cgroup(**places)


def maker(tmp_path: Path, parent: Cgroup, *obstacles: cgroupfs.Obstacle) -> Cgroupfs:
    made = Cgroupfs(tmp_path / "spool")
    vars(made)["place"] = Place(parent, obstacles)
    return made


def writes(made: Cgroupfs, limits: dict[str, int], within: Path) -> list[str]:
    """Return the commands after mkdir, with the paths of files below a directory."""
    mkdir, *commands = made.make_commands(UNIT, Cage("", limits), "254:16")
    assert mkdir == ["mkdir", *map(str, made.cgroup(UNIT).directories)]
    lines = (" ".join(command) for command in commands)
    return [line.removeprefix("sh -c echo ").replace(f"{within}/", "") for line in lines]


def test_the_files_of_version_2_in_their_order(tmp_path: Path) -> None:
    made = maker(tmp_path, tree(tmp_path, "unified"))
    [group] = made.cgroup(UNIT).directories
    assert writes(made, LIMITS, group) == [
        "254:16 rbps=20000000 riops=500 >io.max",
        "1 >memory.oom.group",
        f"{32 * MIB} >memory.max",
        "0 >memory.swap.max",
        "50000 100000 >cpu.max",
    ]
    assert made.remove_commands(UNIT) == [["rmdir", str(group)]]


def test_the_files_of_version_1_with_accounting_switched_on(tmp_path: Path) -> None:
    made = maker(tmp_path, tree(tmp_path, "unified", *V1))
    name = made.cgroup(UNIT).directories[0].name
    assert writes(made, LIMITS, tmp_path) == [
        f"254:16 18446744073709551614 >blkio/{name}/blkio.throttle.read_bps_device",
        f"254:16 0 >blkio/{name}/blkio.throttle.read_bps_device",
        f"254:16 20000000 >blkio/{name}/blkio.throttle.read_bps_device",
        f"254:16 500 >blkio/{name}/blkio.throttle.read_iops_device",
        f"{32 * MIB} >memory/{name}/memory.limit_in_bytes",
        f"0 >memory/{name}/memory.swappiness",
        f"100000 >cpu/{name}/cpu.cfs_period_us",
        f"50000 >cpu/{name}/cpu.cfs_quota_us",
    ]


@pytest.mark.parametrize(
    ("limits", "written"),
    [
        ({"MemorySwapMax": 0}, ["0 >memory.swappiness"]),
        (
            {"MemoryMax": MIB, "MemorySwapMax": MIB},
            [f"{MIB} >memory.limit_in_bytes", f"{2 * MIB} >memory.memsw.limit_in_bytes"],
        ),
    ],
)
def test_swap_in_version_1(tmp_path: Path, limits: dict[str, int], written: list[str]) -> None:
    made = maker(tmp_path, tree(tmp_path, "memory"))
    assert writes(made, limits, made.cgroup(UNIT).directories[0]) == written


def test_groups_of_two_spools_have_different_names(tmp_path: Path) -> None:
    parent = tree(tmp_path, "unified")
    one, other = Cgroupfs(tmp_path / "one"), Cgroupfs(tmp_path / "other")
    vars(one)["place"] = vars(other)["place"] = Place(parent, ())
    assert one.cgroup(UNIT) != other.cgroup(UNIT)


def test_an_obstacle_is_an_error_and_nothing_is_made(tmp_path: Path) -> None:
    parent = tree(tmp_path, "unified")
    made = maker(tmp_path, parent, cgroupfs.Obstacle("io", "there is no io controller", "fix it"))
    with pytest.raises(HostError, match="there is no io controller"):
        made.make(UNIT, Cage("", LIMITS), DISK)
    assert list((tmp_path / "unified").iterdir()) == [tmp_path / "unified/cgroup.procs"]


def test_without_a_cpu_controller_only_a_quota_is_refused(tmp_path: Path) -> None:
    made = maker(tmp_path, tree(tmp_path, "unified"), cgroupfs.Obstacle("cpu", "no cpu", ""))
    made.make(UNIT, Cage("", {"MemoryMax": MIB}), DISK)
    with pytest.raises(HostError, match="no cpu"):
        made.make("pagecage-y.1.slice", Cage("", LIMITS), DISK)


def test_a_file_that_the_kernel_refuses_is_named(tmp_path: Path) -> None:
    made = maker(tmp_path, tree(tmp_path, "memory"))
    (made.cgroup(UNIT).directories[0] / "memory.limit_in_bytes").mkdir(parents=True)
    says = r"the trial's cgroup cannot be made: .*r1_x\.1: File exist"
    with pytest.raises(HostError, match=says):
        made.make(UNIT, Cage("", LIMITS), DISK)


@pytest.mark.parametrize("where", ["unified", "memory"])
def test_a_process_of_a_group_with_limits_has_to_leave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """No group of version 2 may have both processes and controllers below."""
    root = tree(tmp_path, where)
    own = root.child("ours")
    for directory in own.directories:
        directory.mkdir()
        for name, text in {"cgroup.type": "domain", "cgroup.procs": "7", "memory.max": "5"}.items():
            (directory / name).write_text(f"{text}\n")
    monkeypatch.setattr(cgroupfs, "mount_points", lambda: {where: (tmp_path / where, "/")})
    monkeypatch.setattr(cgroups, "mount_points", lambda *_: {where: (tmp_path / where, "/")})
    (tmp_path / where / "cgroup.controllers").write_text("cpu io memory\n")
    found = find_place(own)
    reasons = [one.reason for one in found.obstacles if one.controller == "memory"]
    if where == "unified":
        why = "limits memory.max and has processes, so no cgroup can be made below it"
        assert reasons == [f"{own} {why}"]
        done = run(["sh", "-ec", found.obstacles[0].hint], check=False)
        assert (done.status, done.stderr) == (0, "")
        assert (tmp_path / where / "ours/init/cgroup.procs").read_text() == "7\n"
    else:
        assert reasons == []
        assert found.parent == own


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a unified hierarchy of plain files."""
    root = tmp_path / "unified"
    for module in (cgroupfs, cgroups):
        monkeypatch.setattr(module, "mount_points", lambda *_: {"unified": (root, "/")})
    monkeypatch.setattr(cgroups, "CGROUP_ROOT", root)
    return root


def place_of(root: Path, own: str, files: dict[str, str]) -> Place:
    """Return the place of a process of a cgroup there."""
    for name, text in {"cgroup.controllers": "cpu io memory\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return find_place(Cgroup(unified=root / own))


def test_the_real_root_may_have_processes(root: Path) -> None:
    found = place_of(root, ".", {"cgroup.procs": "1\n7\n"})
    assert found == Place(Cgroup(unified=root), ())


def test_a_group_with_processes_and_no_limits_is_left_for_its_parent(root: Path) -> None:
    files = {
        "a/b/cgroup.procs": "7\n",
        "a/b/cgroup.type": "domain\n",
        "a/b/memory.max": "max\n",
        "a/cgroup.procs": "",
        "a/cgroup.type": "domain\n",
        "a/cgroup.controllers": "io memory cpu\n",
    }
    found = place_of(root, "a/b", files)
    assert found == Place(Cgroup(unified=root / "a"), ())


def test_a_namespaces_root_with_processes_has_a_command_that_moves_them(root: Path) -> None:
    [first] = place_of(root, ".", {"cgroup.procs": "1\n", "cgroup.type": "domain\n"}).obstacles
    assert "is a cgroup namespace's root with processes" in first.reason
    assert first.hint.startswith(f"mkdir {root}/init && ")


def test_a_controller_that_was_not_delegated(root: Path) -> None:
    ours = {"cgroup.procs": "", "cgroup.type": "domain\n", "cgroup.controllers": "memory\n"}
    files = {f"a/{name}": text for name, text in ours.items()}
    found = place_of(root, "a", {**files, "cgroup.type": "domain\n"})
    hints = [(one.controller, one.hint) for one in found.obstacles]
    control = root / "cgroup.subtree_control"
    assert hints == [(name, f"echo +{name} >{control}") for name in ("io", "cpu")]
    assert "the io controller is not delegated to" in found.obstacles[0].reason


def test_without_any_hierarchy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroupfs, "mount_points", dict)
    found = find_place(Cgroup(unified=Path("/nowhere")))
    assert {one.reason for one in found.obstacles} == {"no cgroup hierarchy is mounted here"}
    assert {one.controller for one in found.obstacles} == {"memory", "io", "cpu"}


def test_a_user_without_rights_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = place_of(root, ".", {"cgroup.procs": ""})
    assert found.obstacles[0].reason == f"this user may make no cgroup in {root}"
    assert found.obstacles[0].hint == "run it as root"


def test_a_read_only_hierarchy_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(root.parent)
    read_only = SimpleNamespace(f_flag=real.f_flag | os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda _: read_only)
    found = place_of(root, ".", {"cgroup.procs": ""})
    assert found.obstacles[0].reason == f"{root} is mounted read-only"
    assert found.obstacles[0].hint.startswith("mount -o remount,rw ")


@pytest.mark.parametrize("ends_by", ["the next start", "the end of a session"])
def test_controllers_that_were_enabled_are_disabled_by(tmp_path: Path, ends_by: str) -> None:
    parent = tree(tmp_path, "unified")
    control = tmp_path / "unified/cgroup.subtree_control"
    control.write_text("memory\n")
    (tmp_path / "unified/cgroup.controllers").write_text("cpu io memory pids\n")
    made = maker(tmp_path, parent)
    group = made.make(UNIT, Cage("", {}), DISK)
    assert control.read_text() == "+cpu +io"
    if ends_by == "the next start":
        maker(tmp_path, parent).sweep()
        assert control.read_text() == "-cpu -io"
        return
    made.close()
    assert control.read_text() == "+cpu +io", "the group still needs them"
    for path in group.directories[0].iterdir():
        path.unlink()
    made.remove(UNIT)
    made.close()
    assert control.read_text() == "-cpu -io"
    assert maker(tmp_path, parent).sweep() == []


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Cgroupfs]:
    """Groups of the real kernel, removed at the end."""
    made = Cgroupfs(tmp_path / "spool")
    yield made
    made.sweep()


@pytest.fixture
def file(checkout: Path) -> Iterator[Path]:
    """Return a file on the checkout's disk that is not in the page cache."""
    path = checkout / f"build/tests/{os.getpid()}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(16 * MIB))
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    yield path
    path.unlink()


@pytest.mark.limits
def test_limits_are_in_force_and_read_back(real: Cgroupfs, checkout: Path) -> None:
    disk, cage = resolve_disk(checkout), Cage("", LIMITS)
    group = real.make(UNIT, cage, disk)
    above = {str(one): read_limits(one, disk.maj_min) for one in ancestors(group)}
    expected = expected_read_back(cage, os.sysconf("SC_PAGESIZE"))
    assert limits_not_in_force(expected, read_limits(group, disk.maj_min), above) == []
    real.remove(UNIT)
    assert not group.exists()


@pytest.mark.limits
def test_reads_are_held_to_the_limit_and_counted(real: Cgroupfs, file: Path) -> None:
    disk, cap = resolve_disk(file.parent), 8_000_000
    group = real.make(UNIT, Cage("", {"IOReadBandwidthMax": cap}), disk)
    begin = time.monotonic()
    run(real.enter_command(UNIT, ["cat", str(file)]))
    seconds = time.monotonic() - begin
    counted = read_counters(group, "io.stat")["io.stat"][disk.maj_min]["rbytes"]
    assert counted >= 16 * MIB
    assert counted / seconds <= cap * 1.1


@pytest.mark.limits
def test_reads_without_a_limit_are_counted_too(real: Cgroupfs, file: Path) -> None:
    """blk-throttle of version 1 counts nothing on a disk that never had a limit."""
    disk = resolve_disk(file.parent)
    group = real.make(UNIT, Cage("", {}), disk)
    run(real.enter_command(UNIT, ["cat", str(file)]))
    assert read_counters(group, "io.stat")["io.stat"][disk.maj_min]["rbytes"] >= 16 * MIB


@pytest.mark.limits
def test_a_program_over_its_memory_limit_is_killed_and_counted(
    real: Cgroupfs, checkout: Path
) -> None:
    cage = Cage("", {"MemoryMax": 20 * MIB, "MemorySwapMax": 0})
    group = real.make(UNIT, cage, resolve_disk(checkout))
    fill = "b = b'1' * (60 << 20); print(len(b))"
    done = run(real.enter_command(UNIT, ["python3", "-c", fill]), check=False)
    assert done.status in (-signal.SIGKILL, 128 + signal.SIGKILL)
    counters = read_counters(group)
    assert counters["memory.events"]["oom_kill"] == 1
    assert counters["memory.events"]["max"] > 0
    assert counters["memory.peak"] <= 20 * MIB


@pytest.mark.limits
def test_processes_are_found_in_the_group_and_outside_of_it(real: Cgroupfs, checkout: Path) -> None:
    group = real.make(UNIT, Cage("", {}), resolve_disk(checkout))
    inside = spawn(real.enter_command(UNIT, ["sleep", "60"]))
    wait_until(lambda: [one.name for one in members(group)] == ["sleep"])
    assert outside(inside.pid, group) == []
    left = group.directories[-1].parent / "cgroup.procs"
    left.write_text(str(inside.pid))  # another tool moves it
    assert [one.pid for one in outside(inside.pid, group)] == [inside.pid]
    inside.kill()
    inside.wait()


@pytest.mark.limits
def test_a_process_that_is_ending_has_not_left(real: Cgroupfs, checkout: Path) -> None:
    """While the kernel frees its memory, cgroup v1 shows it in the root."""
    group = real.make(UNIT, Cage("", {}), resolve_disk(checkout))
    fork = "import os\nwhile 1:\n if not os.fork(): b'1' * (64 << 20); os._exit(0)\n os.wait()"
    busy = spawn(real.enter_command(UNIT, ["python3", "-c", fork]))
    wait_until(lambda: len(members(group)) == 2)
    found = [one for _ in range(3000) for one in outside(busy.pid, group)]
    busy.kill()
    busy.wait()
    assert found == []


@pytest.mark.limits
def test_removal_ends_processes_that_a_limit_holds_back(real: Cgroupfs, file: Path) -> None:
    """A read of 16 MiB at 1,000 bytes a second would take hours."""
    disk = resolve_disk(file.parent)
    group = real.make(UNIT, Cage("", {"IOReadBandwidthMax": 1000}), disk)
    held = spawn(real.enter_command(UNIT, ["sh", "-c", f"cat {file} & cat {file} & wait"]))
    wait_until(lambda: len(members(group)) == 3)
    real.remove(UNIT)
    assert held.wait() != 0
    assert not group.exists()


@pytest.mark.limits
def test_the_next_start_finds_what_a_killed_agent_left(real: Cgroupfs, checkout: Path) -> None:
    """It may run in another group, as here: the notes in the spool tell the place."""
    disk = resolve_disk(checkout)
    nested = Cgroupfs(real._notes.parent)
    below = real.make("pagecage-outer.1.slice", Cage("", {}), disk)
    vars(nested)["place"] = replace(nested.place, parent=below)
    group = nested.make(UNIT, Cage("", LIMITS), disk)
    left = spawn(nested.enter_command(UNIT, ["sleep", "60"]))
    wait_until(lambda: [one.name for one in members(group)] == ["sleep"])
    removed = Cgroupfs(real._notes.parent).sweep()
    assert len(removed) == 2
    assert left.wait() == -signal.SIGKILL
    assert not group.exists()
    assert not below.exists()
    assert Cgroupfs(real._notes.parent).sweep() == []


@pytest.mark.limits
def test_groups_that_the_workload_made_are_removed_too(real: Cgroupfs, checkout: Path) -> None:
    group = real.make(UNIT, Cage("", {}), resolve_disk(checkout))
    for directory in group.directories:
        (directory / "inner/most").mkdir(parents=True)
    real.remove(UNIT)
    assert not group.exists()


def killed_before_step(step: int, spool: Path, disk: Disk) -> int:
    """Make a group, run a program in it and remove both in a process that kills itself.

    Returns its exit status, 0 if it has fewer steps.
    """
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    made, steps = Cgroupfs(spool), itertools.count()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        is_step = event in ("os.mkdir", "os.rename", "os.rmdir", "subprocess.Popen")
        is_step = is_step or (event == "open" and "w" in str(arguments[1]))
        if is_step and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    made.make(UNIT, Cage("", LIMITS), disk)
    process = spawn(made.enter_command(UNIT, ["sleep", "60"]))
    wait_until(lambda: [one.name for one in members(made.cgroup(UNIT))] == ["sleep"])
    made.remove(UNIT)
    os._exit(process.wait() != -signal.SIGKILL)


@pytest.mark.limits
def test_sigkill_before_each_step_leaves_nothing_after_the_next_start(
    tmp_path: Path, checkout: Path
) -> None:
    """Steps are directories, files, and the start of the program and its end."""
    disk, left, status = resolve_disk(checkout), set[tuple[int, int]](), -1
    group = Cgroupfs(tmp_path).cgroup(UNIT)
    for step in itertools.count():
        status = killed_before_step(step, tmp_path, disk)
        left.add((sum(one.is_dir() for one in group.directories), len(members(group))))
        Cgroupfs(tmp_path).sweep()
        assert not group.exists()
        assert not (tmp_path / "cgroups.json").exists()
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert step > 2 * len(group.directories) + len(LIMITS)
    assert {(n, 0) for n in range(len(group.directories) + 1)} <= left
    assert (len(group.directories), 1) in left
