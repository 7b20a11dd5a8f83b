"""Claims of articles, decided by a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from analysis.articles.figures import MAXIMUM, MINIMUM
from analysis.articles.rules import (
    compare_traced,
    evaluate_config,
    evaluate_figure,
    evaluate_source_lines,
    missing_requirement,
    traced_words,
)
from analysis.articles.sides import SIDES, evaluate_knee, number_of_sides, sides_of, summarise_sides
from analysis.cells import claim_trials, is_extrapolated, is_planned, wrong_answer_reason
from analysis.data.load import JudgedTrial, Run
from analysis.formatting import depends_on_cpu_speed, unit_scale
from analysis.stats import MedianSummary
from pagecage.verdicts.counters import cpu_seconds, measured_seconds

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


DEFINITION_RULES = ("config", "source_lines")
"""Rules that need no run."""
EXTRAPOLATED = "rests on a pass that was cut short and extrapolated"
_WORD = {
    "oom_killed": "killed",
    "ok": "ran",
    "timed_out": "timed out",
    "wrong_answer": "wrong answer",
}


@dataclass(frozen=True)
class ClaimResult:
    """One row of the claims table.

    `verdict` is `held`, `not_held`, `undecided`, `not_comparable`, `requirement_missed` or
    `no_data`. `measured` is a figure in the claim's unit, an outcome, or None. `low` and `high`
    span its interval, which `kind` names. `origin` is `article` for a figure of its tables or text,
    `conclusion` for an added row that is derived from its conclusions, and empty in older runs.
    """

    id: str
    says: str
    published: Any
    unit: str
    measured: float | str | None
    low: float | None
    high: float | None
    kind: str
    n: int
    verdict: str
    reason: str
    origin: str = ""

    @property
    def is_silent(self) -> bool:
        """True if the run has no figure for it."""
        return self.verdict in ("no_data", "requirement_missed") and self.measured is None


def evaluate_claims(run: Run) -> list[ClaimResult]:
    """Evaluate every claim of the definition, in its order."""
    return [_evaluate(run, claim) for claim in run.definition.get("claims", [])]


def _evaluate(run: Run, claim: Mapping[str, Any]) -> ClaimResult:
    if claim["rule"] in DEFINITION_RULES:
        return definition_result(claim, run.definition)
    sides = sides_of(run, claim)
    eligible = [claim_trials(side, claim) for side in sides]
    if claim["rule"] == "outcome":
        result = _outcome(run, claim, sides[0])
    elif claim["rule"] == "decoded":
        result = _decoded(run, claim, sides, eligible)
    else:
        result = _figure(run, claim, sides, eligible)
    used = sides if claim["rule"] == "decoded" else eligible
    where = measurement_context(run, used) if result.verdict == "not_held" else ""
    return replace(result, reason=f"{result.reason} ({where})") if where else result


def _figure(
    run: Run,
    claim: Mapping[str, Any],
    sides: list[list[JudgedTrial]],
    eligible: list[list[JudgedTrial]],
) -> ClaimResult:
    claim = {"needs": "any_size", "tolerance_factor": 2.0, **claim}
    summary = summarise_sides(run, claim, eligible, claim["unit"])
    if summary is None:
        measured = summarise_sides(run, claim, sides, claim["unit"])
        return _result(claim, measured, *_without_figure(run, claim, sides, eligible))
    incomparable = incomparable_reason(run, claim, eligible)
    if claim["rule"] == "knee":
        summary, (held, reason) = evaluate_knee(run, claim, eligible[0])
    else:
        held, reason = evaluate_figure(claim, summary)
    verdict = "undecided" if held is None else "held" if held else "not_held"
    return _result(
        claim,
        summary,
        "not_comparable" if incomparable else verdict,
        _with_remarks(incomparable or reason, claim, eligible),
    )


def _without_figure(
    run: Run,
    claim: Mapping[str, Any],
    sides: list[list[JudgedTrial]],
    eligible: list[list[JudgedTrial]],
) -> tuple[str, str]:
    """Return the verdict and the reason of a claim for which the run has no figure."""
    missing = missing_requirement(sides, claim["response"])
    if missing:
        return "requirement_missed", missing
    return "no_data", reason_without_figure(run, claim, sides, eligible)


def _with_remarks(
    reason: str, claim: Mapping[str, Any], eligible: Sequence[Sequence[JudgedTrial]]
) -> str:
    """Return the reason, with a remark if the figure rests on a partial pass or a wrong answer."""
    trials = [trial for side in eligible for trial in side]
    partial = any(is_extrapolated(trial, claim["response"]) for trial in trials)
    wrong = wrong_answer_reason(trials)
    return "; ".join(
        part
        for part in (reason, partial and EXTRAPOLATED, wrong and f"the figure of {wrong}")
        if part
    )


def reason_without_figure(
    run: Run,
    claim: Mapping[str, Any],
    sides: Sequence[Sequence[JudgedTrial]],
    eligible: Sequence[Sequence[JudgedTrial]],
) -> str:
    """Return why there is no figure.

    Possible reasons are a missing requirement of the host, a treatment left out of the plan,
    exclusion, and a response that no trial has. `claim` may also be a finding.
    """
    missing = missing_requirement(sides, claim["response"])
    if missing:
        return missing
    if claim.get("over_boot") and not all(sides):
        return "its trials ran in one boot of the host; restart it and resume the run"
    if not all(sides):
        has_trials = all(is_planned(run.plan["trials"], claim.get(key) or {}) for key in SIDES)
        return (
            "its trials have not been run"
            if has_trials
            else f"size {run.plan['size']} leaves its treatment out"
        )
    if not claim.get("with_wrong_answers") and (
        wrong := [wrong_answer_reason(side) for side in sides if _is_all_wrong(side)]
    ):
        return wrong[0]
    points = [
        [t for t in side if t.verdicts.is_data_point or t.record.outcome == "wrong_answer"]
        for side in sides
    ]
    if any(side and not left for side, left in zip(points, eligible, strict=True)):
        return "every trial of it is excluded or has no answer"
    return "no trial of it has a figure"


def _is_all_wrong(side: Sequence[JudgedTrial]) -> bool:
    return bool(side) and all(trial.record.outcome == "wrong_answer" for trial in side)


def _outcome(run: Run, claim: Mapping[str, Any], side: Sequence[JudgedTrial]) -> ClaimResult:
    """Evaluate whether every trial that is not excluded ended as published.

    A wrong answer is an outcome like any other here.
    """
    eligible = claim_trials(side, {"with_wrong_answers": True})
    if not eligible:
        return _result(
            claim, None, "no_data", reason_without_figure(run, claim, [side], [eligible])
        )
    words = sorted({_WORD[trial.record.outcome] for trial in eligible})
    wrong = sum(trial.is_wrong for trial in eligible)
    wrong_answers = (
        f"{wrong} of {len(eligible)} gave {wrong_answer_reason(eligible)}" if wrong else ""
    )
    reason = (
        wrong_answers
        or f"{sum(trial.is_killed for trial in eligible)} of {len(eligible)} were killed for memory"
    )
    held = words == [str(claim["published"]).replace("_", " ")]
    return _result(
        claim, " or ".join(words), "held" if held else "not_held", reason, n=len(eligible)
    )


def _decoded(
    run: Run,
    claim: Mapping[str, Any],
    sides: list[list[JudgedTrial]],
    eligible: list[list[JudgedTrial]],
) -> ClaimResult:
    """Evaluate flags and sizes of the kernel trace, which do not depend on CPU or noise."""
    whole = [trial for trial in sides[0] if trial.is_valid_apart_from_noise]
    result = traced_words(run, whole, claim["response"])
    if isinstance(result, str):
        reason = result if whole else reason_without_figure(run, claim, sides, eligible)
        return _result(claim, None, "no_data", reason)
    measured, held, reason = compare_traced(claim["published"], claim["unit"], *result)
    verdict = "no_data" if measured is None else "held" if held else "not_held"
    return _result(claim, measured, verdict, reason, n=len(whole))


def definition_result(claim: Mapping[str, Any], definition: Mapping[str, Any]) -> ClaimResult:
    """Evaluate a claim about the set-up from the definition or the sources, without a run."""
    measured: Any
    if claim["rule"] == "source_lines":
        measured, (held, reason) = evaluate_source_lines({"tolerance_factor": 2.0, **claim})
    else:
        measured, held, reason = evaluate_config(claim, definition, unit_scale(claim["unit"]))
    return _result(claim, measured, "held" if held else "not_held", reason)


def _result(
    claim: Mapping[str, Any],
    measured: MedianSummary | str | float | None,
    verdict: str,
    reason: str,
    n: int = 0,
) -> ClaimResult:
    summary = measured if isinstance(measured, MedianSummary) else None
    interval = summary if summary and summary.kind not in (MINIMUM, MAXIMUM, "knee") else None
    is_ratio = number_of_sides(claim) > 1 and claim["rule"] != "difference"
    return ClaimResult(
        id=claim["id"],
        says=claim["says"],
        published=claim["published"],
        unit="x" if is_ratio else claim["unit"],
        measured=_finite(measured.middle) if isinstance(measured, MedianSummary) else measured,
        low=_finite(interval.low) if interval else None,
        high=_finite(interval.high) if interval else None,
        kind=summary.kind if summary else "",
        n=summary.n if summary else n,
        verdict=verdict,
        reason=reason,
        origin=claim.get("origin", ""),
    )


def _finite(value: float) -> float | None:
    """Return None for infinity (a ratio to zero), which JSON cannot represent."""
    return value if isfinite(value) else None
