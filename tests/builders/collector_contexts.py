"""What a collector gets, for a slice at any place."""

from __future__ import annotations

from pathlib import Path

from pagecage.agent.collectors.collector import CollectorContext
from pagecage.linux.block_device import Disk
from pagecage.linux.cgroup import Cgroup
from pagecage.linux.child_processes import ToolProcesses
from pagecage.linux.systemd import Systemd
from pagecage.linux.trial_processes import CgroupProcesses

VDA = Disk("vda", "254:0", "/dev/vda", "ext4", "/")


def collector_context(
    directory: Path,
    cgroup: Path,
    *,
    disk: Disk = VDA,
    datasets: tuple[Path, ...] = (),
    spool: Path | None = None,
) -> CollectorContext:
    processes = CgroupProcesses(Systemd(False, 257), "slice", Cgroup(unified=cgroup))
    return CollectorContext(directory, disk, processes, datasets, ToolProcesses(spool or directory))
