"""What stands between a figure and its judging: another size, an emulated CPU; and where it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.data.load import JudgedTrial, Run
from analysis.response_units import is_timely
from pagecage.verdicts.counters import difference, measured_seconds

PUBLISHED_SIZE = "full"
"""The size that a definition keeps for the figures as they were published."""
MOSTLY = 0.5
"""CPUs used: above it a time under emulation is more the emulator's than the disk's."""
Sides = Sequence[Sequence[JudgedTrial]]


def obstacle(run: Run, claim: Mapping[str, Any], sides: Sides) -> str | None:
    """Why a figure cannot be held against the published one, whatever it is; None when nothing stands in the way."""
    is_full = run.plan["size"] == PUBLISHED_SIZE
    emulated = any(trial.record.emulated for side in sides for trial in side)
    if claim["needs"] == "published_size" and not (is_full and not emulated):
        size = "" if is_full else f"published at {dataset(run, PUBLISHED_SIZE)}, measured at {dataset(run)}"
        where = "measured on emulated hardware" if emulated else ""
        return " and ".join(part for part in (size, where) if part)
    if emulated and is_timely(claim["response"]):
        return _cpu_bound(sides)
    return None


def dataset(run: Run, size: str | None = None) -> str:
    """The data of a size, in the definition's words: `8 x 64MiB`."""
    table = (run.definition.get("sizes") or {}).get(size or run.plan["size"]) or {}
    if places := {} if table.get("dataset") else table.get("places"):
        return ", ".join(f"{name} {value}" for name, value in places.items())
    files, each = table.get("files", 1), table.get("dataset") or "another size"
    return f"{files} x {each}" if files > 1 else str(each)


def _cpu_bound(sides: Sides) -> str | None:
    """Under emulation a side that waits for the CPU tells of the emulator, not of the machine."""
    names = ("numerator", "denominator", "other numerator", "other denominator")[: len(sides)]
    slow = [name for name, side in zip(names, sides, strict=True) if any(_waits_for_cpu(trial) for trial in side)]
    whose = f"the time of its {' and '.join(slow)}" if len(sides) > 1 else "its time"
    return f"under emulation {whose} is mostly the translated CPU's" if slow else None


def _waits_for_cpu(trial: JudgedTrial) -> bool:
    seconds, used = measured_seconds(trial.record), difference(trial.record, "cgroup", "cpu.stat", "usage_usec")
    busy = used / 1e6 / seconds if used is not None and seconds else 0.0
    return trial.verdicts.binding_limit.verdict == "cpu" or busy > MOSTLY


def surroundings(run: Run, sides: Sides) -> str:
    """Kernel, disk, size and emulation of a measurement: what a difference may come from."""
    return ", ".join(_surroundings(run, sides))


def _surroundings(run: Run, sides: Sides) -> Iterator[str]:
    kernel = next((str(facts["kernel"]) for facts in run.facts if facts.get("kernel")), None)
    if kernel:
        yield f"kernel {kernel}"
    trials = [trial for side in sides for trial in side]
    for name in dict.fromkeys(str(t.record.device.name) for t in trials if t.record.device.name):
        yield f"disk {name}"
    if run.plan["size"] != PUBLISHED_SIZE:
        yield f"{dataset(run)} instead of {dataset(run, PUBLISHED_SIZE)}"
    if any(trial.record.emulated for trial in trials):
        yield "emulated"
