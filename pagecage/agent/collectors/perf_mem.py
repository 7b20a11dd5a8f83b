"""A collector that samples the loads of the trial's slice with `perf mem` (PEBS or IBS).

The CPU itself samples loads and reports the cache level that served each of them, and its latency
(perf-mem(1)). The report has a row per level. Its overhead is the share of the sum of latencies,
which perf calls weights, and not the share of samples. The recording spans the trial; the report
is limited to the measured part by CLOCK_MONOTONIC.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.collectors.collector import (
    CollectorContext,
    CollectorResult,
    Figures,
    ToolCollector,
)
from pagecage.linux.procfs import has_capability, read_text
from pagecage.process import STDOUT, find_tool, last_line, run

_SYS, _PROC = Path("/sys"), Path("/proc")
# The load events of an Intel CPU, of the fast cores of a hybrid one, and of an AMD CPU.
_EVENTS = ("cpu/events/mem-loads", "cpu_core/events/mem-loads", "ibs_op")
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38  # capabilities(7)

LEVELS: Mapping[str, re.Pattern[str]] = {
    "ram": re.compile(r"(Local )?RAM hit"),
    "unknown": re.compile(r"N/A"),
    "l1": re.compile(r"L1 hit"),
    "l2": re.compile(r"L2 hit"),
    "peer_cache": re.compile(r"core, same node Any cache hit"),
    "fill_buffer": re.compile(r"LFB(/MAB)? hit"),
    "uncached": re.compile(r"Uncached hit"),
}
"""perf's label of each level. Older versions name memory `Local RAM` and the buffer `LFB`."""
LOAD_RESPONSES = frozenset(
    f"loads_{level}_{kind}" for level in LEVELS for kind in ("percent", "samples")
)
_ROW = re.compile(r"^ *(?P<percent>\d+\.\d+)% +(?P<samples>\d+)  (?P<label>\S.*?) *$")
_LOST = re.compile(r"^# Total Lost Samples: (?P<lost>\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class LoadRow:
    """A row of the report: a level's share of all latencies in percent, its samples, its label."""

    percent: float
    samples: int
    label: str


def parse_report(text: str) -> list[LoadRow]:
    found = (_ROW.match(line) for line in text.splitlines())
    return [
        LoadRow(float(row["percent"]), int(row["samples"]), row["label"]) for row in found if row
    ]


def parse_lost_samples(text: str) -> int | None:
    lost = _LOST.search(text)
    return int(lost["lost"]) if lost else None


def responses_of(rows: list[LoadRow]) -> dict[str, float | None]:
    """Return share and samples of each level, 0 for one without a row; None without any row."""
    if not rows:
        return dict.fromkeys(sorted(LOAD_RESPONSES))
    figures: dict[str, float | None] = {}
    for level, label in LEVELS.items():
        of_level = [row for row in rows if label.fullmatch(row.label)]
        figures[f"loads_{level}_percent"] = sum(row.percent for row in of_level)
        figures[f"loads_{level}_samples"] = sum(row.samples for row in of_level)
    return figures


def find_obstacle(sys: Path = _SYS, proc: Path = _PROC) -> str | None:
    if not find_tool("perf"):
        return "perf is not installed"
    devices = sys / "bus/event_source/devices"
    if not any((devices / event).exists() for event in _EVENTS):
        return "the CPU has no event that samples loads (PEBS or IBS), as most virtual CPUs"
    paranoid = int(read_text(proc / "sys/kernel/perf_event_paranoid") or 2)
    may_profile = any(has_capability(one, proc) for one in (_CAP_SYS_ADMIN, _CAP_PERFMON))
    if paranoid > 0 and not may_profile:
        return f"kernel.perf_event_paranoid is {paranoid} and the agent lacks CAP_PERFMON"
    return None


def record_command(data: Path, cgroup: Path) -> list[str]:
    """Return the command that records the loads of a cgroup on all CPUs.

    perf applies -G to the events before it, which `perf mem record` puts in front. The name is that
    below the hierarchy's mount, which is /sys/fs/cgroup/unified beside cgroup v1.
    """
    root = next(folder for folder in cgroup.parents if folder.is_mount())
    name = os.path.relpath(cgroup, root)
    record = ["perf", "mem", "-t", "load", "record", "-a", "-o", str(data)]
    return [*record, "--clockid", "mono", "-G", name]


class PerfMem(ToolCollector):
    """`perf mem record` of the loads in the trial's cgroup, on all CPUs."""

    name, tool = "perf-mem", "perf"

    def __init__(self, context: CollectorContext) -> None:
        super().__init__(context, "perf-mem.data")
        cgroup = context.processes.cgroup
        self._cgroup = cgroup.unified if cgroup else None
        self._is_complete = False

    def start(self) -> None:
        self._obstacle = find_obstacle()
        if self._obstacle is None and self._cgroup is None:
            self._obstacle = "the trial has no cgroup to which the recording could be limited"
        if self._obstacle is None and self._cgroup is not None:
            with self._file.with_suffix(".log").open("wb") as log:
                argv = record_command(self._file, self._cgroup)
                self._process = self._children.start(argv, stdout=log, stderr=STDOUT)

    def _dead(self, reason: str) -> CollectorResult:
        log = read_text(self._file.with_suffix(".log")) or ""
        return CollectorResult("failed", f"{reason}: {last_line(log, 'it printed nothing')}")

    def _completed(self) -> CollectorResult:
        self._is_complete = True
        return CollectorResult("ok")

    def report(self, begin: float, end: float, /) -> tuple[CollectorResult, Figures] | None:
        """The report is kept as the trace. The samples are removed, because they have addresses."""
        if not self._is_complete:
            return None
        argv = ["perf", "report", "-i", str(self._file), "--mem-mode", "-n", "--sort=mem"]
        argv += ["--stdio", "--time", f"{begin:.9f},{end:.9f}"]
        done = run(argv, check=False, timeout_seconds=120, env={"LC_ALL": "C"})
        self._file.unlink(missing_ok=True)
        rows = parse_report(done.stdout)
        if not done.ok or not rows:
            reason = f"perf has no report: {last_line(done.stderr, 'no load was sampled')}"
            return CollectorResult("failed", reason), responses_of([])
        report = self._file.with_suffix(".txt")
        report.write_text(done.stdout)
        lost = parse_lost_samples(done.stdout)
        status = "partial" if lost else "ok"
        loss = f"perf lost {lost} samples" if lost else None
        return CollectorResult(status, loss, lost, (report,)), responses_of(rows)
