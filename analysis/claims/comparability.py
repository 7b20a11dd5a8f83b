"""Conditions under which a figure cannot be compared with the published one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.data.load import JudgedTrial, Run
from analysis.response_units import depends_on_cpu_speed
from pagecage.verdicts.counters import (
    cpu_seconds,
    measured_seconds,
)

PUBLISHED_SIZE = "full"
"""The size at which a definition's figures were published."""
MOSTLY = 0.5
"""CPUs in use above which an emulated time measures the emulator rather than the disk."""
Sides = Sequence[Sequence[JudgedTrial]]


def incomparable_reason(run: Run, claim: Mapping[str, Any], sides: Sides) -> str | None:
    """Return why a figure cannot be compared with the published one; None if it can."""
    if several := different_hosts(sides):
        return several
    is_full = run.plan["size"] == PUBLISHED_SIZE
    emulated = any(trial.record.emulated for side in sides for trial in side)
    if claim["needs"] == "published_size" and not (is_full and not emulated):
        size = (
            ""
            if is_full
            else (
                f"published at {describe_dataset(run, PUBLISHED_SIZE)}, measured at"
                f" {describe_dataset(run)}"
            )
        )
        where = "measured on emulated hardware" if emulated else ""
        return " and ".join(part for part in (size, where) if part)
    if emulated and depends_on_cpu_speed(claim["response"]):
        return _cpu_bound(sides)
    return None


def different_hosts(sides: Sides) -> str | None:
    """Return the reason if the trials of a figure ran on more than one host; None otherwise."""
    hosts = sorted({trial.record.host for side in sides for trial in side})
    return f"its trials ran on different hosts: {', '.join(hosts)}" if len(hosts) > 1 else None


def describe_dataset(run: Run, size: str | None = None) -> str:
    """Return the data of a size as the definition gives it, for example `8 x 64MiB`."""
    table = (run.definition.get("sizes") or {}).get(size or run.plan["size"]) or {}
    if places := {} if table.get("dataset") else table.get("places"):
        return ", ".join(f"{name} {value}" for name, value in places.items())
    files, each = table.get("files", 1), table.get("dataset") or "another size"
    return f"{files} x {each}" if files > 1 else str(each)


def _cpu_bound(sides: Sides) -> str | None:
    """Return the reason if a side's time depends on the emulated CPU; None otherwise."""
    names = ("numerator", "denominator", "other numerator", "other denominator")[: len(sides)]
    slow = [
        name
        for name, side in zip(names, sides, strict=True)
        if any(_waits_for_cpu(trial) for trial in side)
    ]
    whose = f"the time of its {' and '.join(slow)}" if len(sides) > 1 else "its time"
    return f"under emulation {whose} is mostly that of the emulated CPU" if slow else None


def _waits_for_cpu(trial: JudgedTrial) -> bool:
    seconds, used = measured_seconds(trial.record), cpu_seconds(trial.record)
    busy = used / seconds if used is not None and seconds else 0.0
    return trial.verdicts.binding_limit.verdict == "cpu" or busy > MOSTLY


def measurement_context(run: Run, sides: Sides) -> str:
    """Describe kernel, disk, size and emulation, which may explain a difference."""
    return ", ".join(_surroundings(run, sides))


def _surroundings(run: Run, sides: Sides) -> Iterator[str]:
    kernel = next((str(facts["kernel"]) for facts in run.facts if facts.get("kernel")), None)
    if kernel:
        yield f"kernel {kernel}"
    trials = [trial for side in sides for trial in side]
    for name in dict.fromkeys(str(t.record.device.name) for t in trials if t.record.device.name):
        yield f"disk {name}"
    own, published = describe_dataset(run), describe_dataset(run, PUBLISHED_SIZE)
    if own != published:
        yield f"{own} instead of {published}"
    if any(trial.record.emulated for trial in trials):
        yield "emulated"
