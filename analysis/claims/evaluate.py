"""What was published, held against what was measured, by the rule that the definition states beside each claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from analysis.claims.comparability import obstacle, surroundings
from analysis.claims.kernel_trace import compare, seen
from analysis.claims.rules import FOUR_SIDED, SIDES, TWO_SIDED, judge_config, judge_figure
from analysis.data.load import JudgedTrial, Run
from analysis.response_units import in_unit, scale_of
from analysis.stats.intervals import MedianSummary, ratio, ratio_of_ratios, summarise
from analysis.summaries.cells import counted, figure, is_among, is_extrapolated, matching, what_was_wrong

EXTRAPOLATED = "rests on a pass that was cut short and extrapolated"
_WORD = {"oom_killed": "killed", "ok": "ran", "timed_out": "timed out", "wrong_answer": "wrong answer"}


@dataclass(frozen=True)
class ClaimResult:
    """One row of the claims table.

    `verdict` is `held`, `not_held`, `not_comparable` or `no_data`; `measured` a figure in the claim's unit, an outcome
    or nothing; `low` and `high` span its interval (`kind`).
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

    @property
    def is_silent(self) -> bool:
        """Whether the run has nothing to say about it."""
        return self.verdict == "no_data" and self.measured is None


def evaluate_claims(run: Run) -> list[ClaimResult]:
    """Every claim of the definition, in its order."""
    return [_evaluate(run, claim) for claim in run.definition.get("claims", [])]


def _evaluate(run: Run, claim: Mapping[str, Any]) -> ClaimResult:
    if claim["rule"] == "config":
        return config_result(claim, run.definition)
    sides = [matching(run.trials, claim.get(key) or {}) for key in SIDES[: _sides(claim)]]
    kept = [counted(side, claim) for side in sides]
    if claim["rule"] == "outcome":
        found = _outcome(run, claim, sides[0])
    elif claim["rule"] == "decoded":
        found = _decoded(run, claim, sides, kept)
    else:
        found = _figure(run, claim, sides, kept)
    used = sides if claim["rule"] == "decoded" else kept
    where = surroundings(run, used) if found.verdict == "not_held" else ""
    return replace(found, reason=f"{found.reason} ({where})") if where else found


def _figure(
    run: Run, claim: Mapping[str, Any], sides: list[list[JudgedTrial]], kept: list[list[JudgedTrial]]
) -> ClaimResult:
    summary = _summary(claim, kept)
    if summary is None:
        return _result(claim, _summary(claim, sides), "no_data", missing(run, claim, sides, kept))
    hindered = obstacle(run, {"needs": "any_size", **claim}, kept)
    if hindered:
        return _result(claim, summary, "not_comparable", _sentence(hindered, claim, kept))
    held, why = judge_figure({"tolerance_factor": 2.0, **claim}, summary)
    return _result(claim, summary, "held" if held else "not_held", _sentence(why, claim, kept))


def _sides(claim: Mapping[str, Any]) -> int:
    """How many groups of trials its rule compares."""
    return 4 if claim["rule"] in FOUR_SIDED else 2 if claim["rule"] in TWO_SIDED else 1


def _summary(claim: Mapping[str, Any], kept: Sequence[Sequence[JudgedTrial]]) -> MedianSummary | None:
    """The measured figure in the claim's unit; a plain number where sides are divided."""
    values = [[v for t in side if (v := answer(t, claim["response"])) is not None] for side in kept]
    if not all(values):
        return None
    if len(values) > 1:
        return ratio(*values) if claim["rule"] in TWO_SIDED else ratio_of_ratios(*values)
    return summarise([in_unit(claim["response"], value, claim["unit"]) for value in values[0]])


def answer(trial: JudgedTrial, response: str) -> float | None:
    """A trial's figure; a killed one has none."""
    return None if trial.is_killed else figure(trial, response)


def _sentence(why: str, claim: Mapping[str, Any], kept: Sequence[Sequence[JudgedTrial]]) -> str:
    """The reason, and what it rests on where that is less than a whole pass, or not a right answer."""
    trials = [trial for side in kept for trial in side]
    partial = any(is_extrapolated(trial, claim["response"]) for trial in trials)
    wrong = what_was_wrong(trials)
    return "; ".join(part for part in (why, partial and EXTRAPOLATED, wrong and f"the figure of {wrong}") if part)


def missing(
    run: Run, claim: Mapping[str, Any], sides: Sequence[Sequence[JudgedTrial]], kept: Sequence[Sequence[JudgedTrial]]
) -> str:
    """Why there is no figure: what the host lacks, exclusion, a treatment left out, a response nobody told.

    `claim` may be a finding as well.
    """
    lacking = [m.reason for side in sides for t in side for m in t.record.missed_requirements]
    if lacking:
        return f"the host lacks what it needs: {lacking[0]}"
    if not all(sides):
        is_planned = all(is_among(run.plan["trials"], claim.get(key) or {}) for key in SIDES)
        return "its trials have not been run" if is_planned else f"size {run.plan['size']} leaves its treatment out"
    if not claim.get("with_wrong_answers") and (
        wrong := [what_was_wrong(side) for side in sides if _is_all_wrong(side)]
    ):
        return wrong[0]
    points = [[t for t in side if t.verdicts.is_data_point or t.record.outcome == "wrong_answer"] for side in sides]
    if any(side and not left for side, left in zip(points, kept, strict=True)):
        return "every trial of it is excluded or has no answer, so that its figure proves nothing"
    return "no trial of it has a figure"


def _is_all_wrong(side: Sequence[JudgedTrial]) -> bool:
    return bool(side) and all(trial.record.outcome == "wrong_answer" for trial in side)


def _outcome(run: Run, claim: Mapping[str, Any], side: Sequence[JudgedTrial]) -> ClaimResult:
    """Whether every trial that nothing excludes ended as it was published; a wrong answer is an end like another."""
    kept = counted(side, {"with_wrong_answers": True})
    if not kept:
        return _result(claim, None, "no_data", missing(run, claim, [side], [kept]))
    words = sorted({_WORD[trial.record.outcome] for trial in kept})
    wrong = sum(trial.is_wrong for trial in kept)
    told = f"{wrong} of {len(kept)} gave {what_was_wrong(kept)}" if wrong else ""
    why = told or f"{sum(trial.is_killed for trial in kept)} of {len(kept)} were killed for memory"
    held = words == [str(claim["published"]).replace("_", " ")]
    return _result(claim, " or ".join(words), "held" if held else "not_held", why, n=len(kept))


def _decoded(
    run: Run, claim: Mapping[str, Any], sides: list[list[JudgedTrial]], kept: list[list[JudgedTrial]]
) -> ClaimResult:
    """Flags and sizes that the trace shows; neither the kind of CPU nor who else ran matters to them."""
    whole = [trial for trial in sides[0] if trial.is_whole]
    found = seen(run, whole, claim["response"])
    if found is None:
        why = "no trial of it has a trace" if whole else missing(run, claim, sides, kept)
        return _result(claim, None, "no_data", why)
    measured, held, why = compare(claim["published"], claim["unit"], *found)
    verdict = "no_data" if measured is None else "held" if held else "not_held"
    return _result(claim, measured, verdict, why, n=len(whole))


def config_result(claim: Mapping[str, Any], definition: Mapping[str, Any]) -> ClaimResult:
    """A claim about how it was measured: the definition itself answers, and no run is needed."""
    measured, held, why = judge_config(claim, definition, scale_of(claim["unit"]))
    return _result(claim, measured, "held" if held else "not_held", why)


def _result(
    claim: Mapping[str, Any], measured: MedianSummary | str | float | None, verdict: str, why: str, n: int = 0
) -> ClaimResult:
    summary = measured if isinstance(measured, MedianSummary) else None
    return ClaimResult(
        id=claim["id"], says=claim["says"], published=claim["published"],
        unit="x" if _sides(claim) > 1 else claim["unit"],
        measured=_finite(measured.middle) if isinstance(measured, MedianSummary) else measured,
        low=_finite(summary.low) if summary else None, high=_finite(summary.high) if summary else None,
        kind=summary.kind if summary else "", n=summary.n if summary else n, verdict=verdict, reason=why,
    )  # fmt: skip


def _finite(value: float) -> float | None:
    """JSON knows no infinity, which a ratio to nothing is."""
    return value if isfinite(value) else None
