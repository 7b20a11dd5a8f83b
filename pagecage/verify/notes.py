"""Sentences on the evidence that this machine hides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pagecage.agent.system.cgroup import Cgroup, is_real_root
from pagecage.agent.system.cgroup_files import read_counters
from pagecage.model.cage import MEMORY_EVENT
from pagecage.verify.in_force import LimitInForce
from pagecage.verify.kernel import KernelTrees
from pagecage.verify.target import Target

_FIRST_NAMESPACE = "cgroup:[4026531835]"  # PROC_CGROUP_INIT_INO (include/linux/proc_ns.h)
_WRITES = ("IOWriteBandwidthMax", "IOWriteIOPSMax")


def notes(target: Target, effective: Sequence[LimitInForce], kernel: KernelTrees) -> Iterator[str]:
    """Yield a sentence for each kind of evidence that this machine hides."""
    yield from _hidden_groups(kernel, kernel.mount_of(target.directory))
    for name in kernel.missing_controllers():
        yield f"No hierarchy that is mounted here has the controller {name}."
    yield from _version_1(target.cgroup, effective, kernel)
    yield from _uncounted(target.cgroup, effective)


def _hidden_groups(kernel: KernelTrees, mount: Path | None) -> Iterator[str]:
    if _namespace(kernel) not in (None, _FIRST_NAMESPACE):
        yield (
            "This process is in a cgroup namespace: limits of the cgroups above"
            f" {mount} are hidden."
        )
    elif any(mounted != "/" for _, mounted in kernel.mounts.values()):
        yield f"This process is in a container: limits of the cgroups above {mount} are hidden."


def _namespace(kernel: KernelTrees) -> str | None:
    try:
        return str((kernel.proc / "self/ns/cgroup").readlink())
    except OSError:
        return None


def _version_1(
    cgroup: Cgroup, effective: Sequence[LimitInForce], kernel: KernelTrees
) -> Iterator[str]:
    if "memory" in kernel.mounts:
        yield (
            "Memory is controlled by cgroup v1, which has no MemoryHigh, and counts neither reclaim"
            " nor the times that a limit on swap was met."
        )
    if "blkio" in kernel.mounts:
        yield (
            "I/O is controlled by cgroup v1, which may count no I/O on a disk that never had a"
            " limit."
        )
    if is_real_root(cgroup.blkio, "blkio"):
        yield "The program is in the root of blkio, whose counters include the I/O of every group."
    for limit in effective:
        if limit.name in _WRITES and cgroup.blkio:
            yield (
                f"{limit.name} does not hold buffered writes back: in cgroup v1 the kernel's"
                " flusher writes them, outside of the cgroup."
            )


def _uncounted(cgroup: Cgroup, effective: Sequence[LimitInForce]) -> Iterator[str]:
    counters = read_counters(cgroup, "io.pressure", "memory.pressure", "memory.stat")
    if counters["io.pressure"] is None:
        reason = (
            "The kernel has no pressure figures for this cgroup (psi=1 on its command line)"
            if cgroup.unified
            else "The program has no cgroup of its own in version 2, where pressure is counted"
        )
        yield f"{reason}, so a limit counts as binding only where it is nearly full."
    has_refaults = "workingset_refault_file" in (counters["memory.stat"] or {})
    if {limit.name for limit in effective} & MEMORY_EVENT.keys() and not (
        has_refaults or counters["memory.pressure"]
    ):
        yield (
            "The kernel counts neither refaults nor waits for memory in this cgroup: what the"
            " memory limit costs is unknown, and only its hits are counted."
        )
