"""Sources of a trial's samples: the files of its cgroup, or its processes without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.agent.system.cgroup import Cgroup, ancestors
from pagecage.agent.system.cgroup_files import CounterFiles, LimitFiles
from pagecage.agent.system.trial_processes import TrialProcesses
from pagecage.model.cage import IO_STAT_KEY

_MEMORY_KEYS = ("anon", "file", "pgmajfault", "workingset_refault_file", "pgscan", "pgsteal")
_EVENT_KEYS = ("high", "max", "oom", "oom_kill")
_CPU_KEYS = ("usage_usec", "throttled_usec")
_IO_KEYS = tuple(IO_STAT_KEY.values())
_PRESSURES = ("io", "memory", "cpu")
_FILES = (
    "memory.current",
    "memory.stat",
    "memory.events",
    "io.stat",
    "cpu.stat",
    *(f"{kind}.pressure" for kind in _PRESSURES),
)


def pick(counters: Mapping[str, int], keys: tuple[str, ...]) -> dict[str, int]:
    """Return only these keys, without those that are missing."""
    return {key: counters[key] for key in keys if key in counters}


def _totals(rows: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {kind: row["total"] for kind, row in rows.items() if "total" in row}


class CgroupSource:
    """The files of a cgroup, which are opened once.

    A limit is part of the first sample, and of each that finds another text than the one before.
    Those of the ancestors have the cgroup's path before the name.
    """

    def __init__(self, cgroup: Cgroup) -> None:
        self._counters = CounterFiles(cgroup, _FILES)
        above = {f"{one}/": one for one in ancestors(cgroup)}
        self._limits = {prefix: LimitFiles(one) for prefix, one in {"": cgroup, **above}.items()}

    def row(
        self, maj_min: str, _disk: Mapping[str, int], others: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return one sample of every file; `disks` has the I/O on the other disks by name."""
        found = {name: self._counters.read(name) for name in _FILES}
        io = found["io.stat"] or {}
        disks = {name: {"io": pick(io.get(one, {}), _IO_KEYS)} for name, one in others.items()}
        return {
            **({"disks": disks} if disks else {}),
            **self._changed_limits(maj_min),
            "io": pick(io.get(maj_min, {}), _IO_KEYS),
            "memory_current": found["memory.current"],
            "memory_stat": pick(found["memory.stat"] or {}, _MEMORY_KEYS),
            "memory_events": pick(found["memory.events"] or {}, _EVENT_KEYS),
            "cpu": pick(found["cpu.stat"] or {}, _CPU_KEYS),
            "pressure": {kind: _totals(found[f"{kind}.pressure"] or {}) for kind in _PRESSURES},
        }

    def _changed_limits(self, maj_min: str) -> dict[str, dict[str, str]]:
        changed = {
            f"{prefix}{name}": value
            for prefix, files in self._limits.items()
            for name, value in files.changed(maj_min).items()
        }
        return {"limits": changed} if changed else {}

    def close(self) -> None:
        """Close the files."""
        self._counters.close()
        for files in self._limits.values():
            files.close()


class TreeSource:
    """The counters of processes without a cgroup.

    Bytes and CPU time are their own. The numbers of I/Os are the disk's, and the pressure is the
    machine's, so they include what other processes do.
    """

    def __init__(self, processes: TrialProcesses) -> None:
        self._processes = processes

    def row(
        self, _maj_min: str, disk: Mapping[str, int], _others: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return one sample; without memory figures, which only a cgroup has."""
        own = self._processes.counters()["processes"] or {"io": {}, "cpu": {}}
        ios = {"rios": disk.get("reads"), "wios": disk.get("writes")}
        return {
            "io": own["io"] | {key: count for key, count in ios.items() if count is not None},
            "memory_current": None,
            "memory_stat": {},
            "memory_events": {},
            "cpu": own["cpu"],
            "pressure": {kind: _totals(rows) for kind, rows in (own.get("pressure") or {}).items()},
        }

    def close(self) -> None:
        """Do nothing: no file is kept open."""
