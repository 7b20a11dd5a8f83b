"""Limits that surroundings impose on this process: a container's, a session's, a CI runner's.

They hold for a trial without a slice of its own. Both versions of cgroups are read, and named as
version 2 names them (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst,
blkio-controller.rst, scheduler/sched-bwc.rst).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pagecage.agent.system.cgroupfs import CGROUP_ROOT, own_cgroup, read_limits
from pagecage.agent.system.kernel_text import parse_flat_keyed, read_text

HITS = "memory.hits"
"""Key of the number of times that the memory limit was met (memory.events, memory.failcnt)."""
_UNLIMITED_BYTES = 1 << 62  # version 1 shows "no limit" as the largest multiple of the page size
_THROTTLE = {
    "io.max.rbps": "read_bps",
    "io.max.wbps": "write_bps",
    "io.max.riops": "read_iops",
    "io.max.wiops": "write_iops",
}


def read_imposed_limits(maj_min: str, proc: Path = Path("/proc")) -> dict[str, dict[str, str]]:
    """Return the limits on this process by cgroup, nearest first, without those that are `max`."""
    root = CGROUP_ROOT
    found = {str(cgroup): _of_v2(cgroup, maj_min) for cgroup in _lineage(own_cgroup(root), root)}
    for controller, cgroup, mount in _v1_cgroups(proc):
        for one in _lineage(cgroup, mount):
            found[str(one)] = found.get(str(one), {}) | _of_v1(controller, one, maj_min)
    return {cgroup: limits for cgroup, limits in found.items() if limits.keys() - {HITS}}


def _lineage(cgroup: Path, root: Path) -> Iterator[Path]:
    """Yield a cgroup and its parents up to the mount point, which is a container's own cgroup."""
    yield cgroup
    while cgroup != root and root in cgroup.parents:
        cgroup = cgroup.parent
        yield cgroup


def _of_v2(cgroup: Path, maj_min: str) -> dict[str, str]:
    limits = {key: value for key, value in read_limits(cgroup, maj_min).items() if value != "max"}
    limits = {key: value for key, value in limits.items() if not value.startswith("max ")}
    hits = parse_flat_keyed(read_text(cgroup / "memory.events") or "").get("max")
    return limits if hits is None else limits | {HITS: str(hits)}


def _v1_cgroups(proc: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield controller, cgroup and mount point of each hierarchy of version 1 (cgroups(7))."""
    mounts = dict(_v1_mounts(proc))
    for line in (read_text(proc / "self/cgroup") or "").splitlines():
        _, names, path = line.split(":", 2)
        for controller in names.split(","):
            if mount := mounts.get(controller):
                cgroup = mount / path.lstrip("/")
                # In a container the path may be that of the host, which is not mounted here.
                yield controller, cgroup if cgroup.is_dir() else mount, mount


def _v1_mounts(proc: Path) -> Iterator[tuple[str, Path]]:
    for line in (read_text(proc / "self/mountinfo") or "").splitlines():
        words, _, source = line.partition(" - ")
        if source.startswith("cgroup "):
            for controller in source.split()[-1].split(","):
                yield controller, Path(words.split()[4])


def _of_v1(controller: str, cgroup: Path, maj_min: str) -> dict[str, str]:
    match controller:
        case "memory":
            return _memory(cgroup)
        case "cpu":
            return _cpu(cgroup)
        case "blkio":
            return _blkio(cgroup, maj_min)
    return {}


def _memory(cgroup: Path) -> dict[str, str]:
    limit, hits = (read_text(cgroup / f"memory.{name}") for name in ("limit_in_bytes", "failcnt"))
    found = {} if hits is None else {HITS: hits.strip()}
    return (
        found
        if not limit or int(limit) >= _UNLIMITED_BYTES
        else found | {"memory.max": limit.strip()}
    )


def _cpu(cgroup: Path) -> dict[str, str]:
    quota, period = (read_text(cgroup / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return {} if not quota or int(quota) < 0 else {"cpu.max": f"{quota.strip()} {period}".strip()}


def _blkio(cgroup: Path, maj_min: str) -> dict[str, str]:
    found = {}
    for name, file in _THROTTLE.items():
        for line in (read_text(cgroup / f"blkio.throttle.{file}_device") or "").splitlines():
            disk, value = line.split()
            if disk == maj_min:
                found[name] = value
    return found
