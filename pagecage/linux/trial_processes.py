"""The processes of one trial, kept together by a cgroup or, without one, by a supervisor."""

from __future__ import annotations

from dataclasses import dataclass

from pagecage.linux.cgroup import Cgroup, members, outside
from pagecage.linux.cgroup_files import read_counters
from pagecage.linux.cgroupfs import Cgroupfs
from pagecage.linux.processes import ProcessInfo, SupervisedProcesses
from pagecage.linux.systemd import Systemd
from pagecage.model.json_codec import Json

CgroupMaker = Systemd | Cgroupfs
"""A maker of the cgroups of trials; a unit is the name of a trial's slice (`unit_name`)."""


@dataclass(frozen=True)
class CgroupProcesses:
    """The processes in a trial's cgroup: what they use, which they are, how they are ended."""

    maker: CgroupMaker
    unit: str
    cgroup: Cgroup

    def launched(self, pid: int) -> None:
        """Do nothing: the cgroup contains the process."""

    def counters(self) -> Json:
        """Return the counters that records keep: `cgroup`, or `processes` if that is None."""
        return {"cgroup": read_counters(self.cgroup)}

    def read_bytes(self, maj_min: str) -> int | None:
        """Return `rbytes` of io.stat, which has no line for a disk that was never touched."""
        io = read_counters(self.cgroup, "io.stat")["io.stat"]
        return None if io is None else io.get(maj_min, {}).get("rbytes", 0)

    def members(self) -> list[ProcessInfo]:
        return members(self.cgroup)

    def outside(self, pid: int) -> list[ProcessInfo]:
        """Return the process and descendants of it that have left."""
        return outside(pid, self.cgroup)

    def signal(self, name: str) -> None:
        """Send a signal, such as KILL, to every process."""
        self.maker.signal(self.unit, name)

    def oom_kills(self) -> int | None:
        """Return None without memory.events; an exit status of 137 may be any SIGKILL."""
        events = read_counters(self.cgroup, "memory.events")["memory.events"]
        return None if events is None else events.get("oom_kill", 0)


TrialProcesses = CgroupProcesses | SupervisedProcesses
"""The processes of one trial, whose `cgroup` is None if the host has none for them."""
