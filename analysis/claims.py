"""What was published, held against what was measured, by the rule that the definition states beside each claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.cells import figure, is_extrapolated, matching
from analysis.load import Judged, Run
from analysis.stats import Summary, ratio, summarise
from pagecage.verdicts.readings import difference, measured_seconds

PUBLISHED_SIZE = "full"
"""The size that a definition keeps for the figures as they were published."""
MOSTLY = 0.5
"""CPUs used: above it a time under emulation is more the emulator's than the disk's."""
_SCALE = {"s": 1.0, "x": 1.0, "MB/s": 1e6, "GB": 1e9, "MB": 1e6, "IOPS": 1.0}
_WORD = {"oom_killed": "killed", "ok": "ran", "timed_out": "timed out"}


@dataclass(frozen=True)
class ClaimResult:
    """One row of the claims table.

    `verdict` is `held`, `not_held`, `not_comparable` or `no_data`; `measured` a figure in the claim's unit, an outcome
    or nothing; `low` and `high` span its interval (`kind`).
    """

    id: str
    says: str
    published: float | str
    unit: str
    measured: float | str | None
    low: float | None
    high: float | None
    kind: str
    n: int
    verdict: str
    why: str


def evaluate_claims(run: Run) -> list[ClaimResult]:
    """Every claim of the definition, in its order."""
    return [_evaluate(run, claim) for claim in run.definition.get("claims", [])]


def _evaluate(run: Run, claim: Mapping[str, Any]) -> ClaimResult:
    sides = [matching(run.trials, claim["where"])]
    if claim["rule"] == "ratio":
        sides.append(matching(run.trials, claim["over"]))
    kept = [[trial for trial in side if trial.is_included] for side in sides]
    if claim["rule"] == "outcome":
        return _outcome(claim, sides[0], kept[0])
    summary = _summary(claim, kept)
    if summary is None:
        return _result(claim, _summary(claim, sides), "no_data", _missing(sides, kept))
    obstacle = _obstacle(run, claim, kept)
    if obstacle:
        return _result(claim, summary, "not_comparable", _sentence(obstacle, claim, kept))
    return _result(claim, summary, *_within(claim, summary, kept))


def _summary(claim: Mapping[str, Any], kept: Sequence[Sequence[Judged]]) -> Summary | None:
    """The measured figure in the claim's unit."""
    scale = _SCALE[claim["unit"]]
    values = [[v / scale for t in side if (v := _value(t, claim)) is not None] for side in kept]
    if not all(values):
        return None
    return ratio(values[0], values[1]) if claim["rule"] == "ratio" else summarise(values[0])


def _value(trial: Judged, claim: Mapping[str, Any]) -> float | None:
    return None if trial.is_killed else figure(trial, claim["response"])


def _obstacle(run: Run, claim: Mapping[str, Any], kept: Sequence[Sequence[Judged]]) -> str | None:
    """Why a figure cannot be held against the published one, whatever it is."""
    is_full = run.plan["size"] == PUBLISHED_SIZE
    emulated = any(trial.record.emulated for side in kept for trial in side)
    if claim["needs"] == "published_size" and not (is_full and not emulated):
        size = "" if is_full else f"published at {_dataset(run, PUBLISHED_SIZE)}, measured at {_dataset(run)}"
        where = "measured on emulated hardware" if emulated else ""
        return " and ".join(part for part in (size, where) if part)
    if emulated and claim["rule"] == "ratio":
        return _cpu_bound(kept)
    return None


def _dataset(run: Run, size: str | None = None) -> str:
    sizes = run.definition.get("sizes") or {}
    return str((sizes.get(size or run.plan["size"]) or {}).get("dataset", "another size"))


def _cpu_bound(kept: Sequence[Sequence[Judged]]) -> str | None:
    """Under emulation a side that waits for the CPU tells of the emulator, not of the machine."""
    names = ("numerator", "denominator")
    slow = [n for n, side in zip(names, kept, strict=True) if any(_waits_for_cpu(trial) for trial in side)]
    return f"under emulation the time of its {' and '.join(slow)} is mostly the translated CPU's" if slow else None


def _waits_for_cpu(trial: Judged) -> bool:
    seconds, used = measured_seconds(trial.record), difference(trial.record, "cgroup", "cpu.stat", "usage_usec")
    busy = used / 1e6 / seconds if used is not None and seconds else 0.0
    return trial.verdicts.binding_limit.verdict == "cpu" or busy > MOSTLY


def _within(claim: Mapping[str, Any], summary: Summary, kept: Sequence[Sequence[Judged]]) -> tuple[str, str]:
    published, factor = float(claim["published"]), float(claim["tolerance_factor"])
    off = summary.middle / published if published else float("inf")
    held = 1 / factor <= off <= factor
    word = "within" if held else "outside"
    why = f"{_times(off)} the published figure, {word} a factor of {factor:g}"
    return "held" if held else "not_held", _sentence(why, claim, kept)


def _times(off: float) -> str:
    return f"{off:.2f} times"


def _sentence(why: str, claim: Mapping[str, Any], kept: Sequence[Sequence[Judged]]) -> str:
    """The reason, and what it rests on where that is less than a whole pass."""
    partial = any(is_extrapolated(trial, claim["response"]) for side in kept for trial in side)
    return f"{why}; rests on a pass that was cut short and extrapolated" if partial else why


def _missing(sides: Sequence[Sequence[Judged]], kept: Sequence[Sequence[Judged]]) -> str:
    if any(side and not left for side, left in zip(sides, kept, strict=True)):
        return "every trial of it is excluded or has no answer, so that its figure proves nothing"
    return "no trial of it has a figure"


def _outcome(claim: Mapping[str, Any], side: Sequence[Judged], kept: Sequence[Judged]) -> ClaimResult:
    """Whether every included trial ended as it was published."""
    if not kept:
        return _result(claim, None, "no_data", _missing([side], [kept]))
    killed = sum(trial.is_killed for trial in kept)
    words = sorted({_WORD[trial.record.outcome] for trial in kept})
    why = f"{killed} of {len(kept)} were killed for memory"
    held = words == [claim["published"]]
    return _result(claim, " or ".join(words), "held" if held else "not_held", why, n=len(kept))


def _result(
    claim: Mapping[str, Any], measured: Summary | str | None, verdict: str, why: str, n: int = 0
) -> ClaimResult:
    return ClaimResult(
        id=claim["id"],
        says=claim["says"],
        published=claim["published"],
        unit=claim["unit"],
        measured=measured.middle if isinstance(measured, Summary) else measured,
        low=measured.low if isinstance(measured, Summary) else None,
        high=measured.high if isinstance(measured, Summary) else None,
        kind=measured.kind if isinstance(measured, Summary) else "",
        n=measured.n if isinstance(measured, Summary) else n,
        verdict=verdict,
        why=why,
    )
