"""Table cells: the figures of one treatment's trials, and the trials left out of them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.data.load import JudgedTrial, Run, Treatment
from analysis.formatting import format_published, format_quantity, format_range, treatment_label
from analysis.stats.intervals import MedianSummary, summarise
from analysis.summaries.proof import MARK

_MAX_REASONS = 2
"""Number of distinct wrong-answer messages that a cell reports."""


@dataclass(frozen=True)
class TreatmentCell:
    """The figures of one treatment.

    `summary` covers the included trials that have a figure, or the excluded ones if no trial is
    included. It covers trials with a wrong answer only if there are no others.

    `killed` counts the trials that the kernel killed for memory. `unanswered` counts those without
    an answer, and `unable` those of them for which the host lacks a requirement. `wrong` counts
    wrong answers, and `wrong_reason` describes them. `unproven` counts included trials without a
    proof of their limits or of a quiet host. `is_extrapolated` is true if a figure stands for a
    whole pass of which only a part was read.
    """

    treatment: Treatment
    response: str
    summary: MedianSummary | None
    killed: int
    excluded: int
    unanswered: int
    unable: int
    is_extrapolated: bool
    is_all_excluded: bool
    answered: int = 0
    wrong: int = 0
    wrong_reason: str = ""
    unproven: int = 0

    @property
    def text(self) -> str:
        """The figure in its shortest form.

        `≈` marks an extrapolated figure, `( ) †` one that rests on excluded trials alone, `°` one
        that includes trials without proof, `–` no figure.
        """
        if self.summary is None:
            return (
                self._wrapped("killed" if self.killed else "wrong answer")
                if self.killed or self.wrong
                else "–"
            )
        sign = "≈ " if self.is_extrapolated else ""
        figure = f"{sign}{format_quantity(self.response, self.summary.middle)}"
        if self.is_all_wrong:
            return self._wrapped(f"wrong: {figure}")
        mark = f" {MARK}" if self.unproven else ""
        killed = f", {self.killed} killed" if self.killed else ""
        return self._wrapped(f"{figure}{mark}{killed}")

    @property
    def spread(self) -> str:
        """The note below the figure: interval, number of trials, and trials left out."""
        parts = []
        if self.summary and self.summary.n > 1:
            low, high = (
                format_quantity(self.response, end) for end in (self.summary.low, self.summary.high)
            )
            parts.append(f"{self.summary.kind} {format_range(low, high)}")
        answers = self.summary.n if self.summary else self.killed
        parts += [f"n {answers}"] if answers or not self.unanswered else []
        parts += [f"{self.unproven} without proof"] if self.unproven else []
        left_out = ((self.excluded, "excluded"), (self.unanswered - self.unable, "unanswered"))
        parts += [f"{n} {word}" for n, word in left_out if n]
        parts += ["the host lacks a requirement"] if self.unable else []
        rest = "" if self.is_all_wrong else f"{self.wrong} more with "
        parts += [f"{rest}{self.wrong_reason}"] if self.wrong else []
        return ", ".join(parts)

    @property
    def is_all_wrong(self) -> bool:
        """True if every figure comes from a wrong answer."""
        return bool(self.wrong) and not self.answered

    def _wrapped(self, text: str) -> str:
        return f"({text}) †" if self.is_all_excluded else text


def treatments(run: Run) -> Iterator[Treatment]:
    """Yield the planned treatments in the order of the definition's levels."""
    planned = [dict(trial["treatment"]) for trial in run.plan["trials"]]
    for levels in itertools.product(*run.factors.values()):
        treatment = dict(zip(run.factors, levels, strict=True))
        if treatment in planned:
            yield treatment


def trials_of(trials: Sequence[JudgedTrial], where: Treatment) -> list[JudgedTrial]:
    """Return the trials whose treatment has all the levels in `where`."""
    return [t for t in trials if all(t.record.treatment.get(k) == v for k, v in where.items())]


def claim_trials(trials: Sequence[JudgedTrial], table: Mapping[str, Any]) -> list[JudgedTrial]:
    """Return the trials on which a claim or a finding rests.

    These are the included trials, and wrong answers if its table has `with_wrong_answers`.
    """
    return [t for t in trials if t.is_included or (t.is_wrong and table.get("with_wrong_answers"))]


def wrong_answer_reason(trials: Sequence[JudgedTrial]) -> str:
    """Describe the wrong answers among the trials, each message once; empty if there are none."""
    messages = dict.fromkeys(
        str(t.record.error).rstrip(".") for t in trials if t.record.outcome == "wrong_answer"
    )
    return f"a wrong answer: {'; '.join(list(messages)[:_MAX_REASONS])}" if messages else ""


def is_planned(planned: Sequence[Mapping[str, Any]], where: Treatment) -> bool:
    """Return whether a plan holds a trial with all the levels in `where`."""
    return any(where.items() <= dict(trial["treatment"]).items() for trial in planned)


def response_value(trial: JudgedTrial, response: str) -> float | None:
    """Return a trial's figure; device totals of an incomplete pass are scaled to the whole pass.

    A program that reports no coverage, such as a command, did all of its work. Jobs of fio that may
    read the same bytes have no pass, and no totals.
    """
    found = trial.record.response
    value, covered = found.get(response), found.get("covered_fraction")
    if value is None or response not in ("device_read_bytes", "device_reads"):
        return value
    if covered is None:
        return value if found.get("covered_times") is None else None
    return value / covered if covered else None


def included_values(run: Run, treatment: Treatment, response: str) -> list[float]:
    """Return the figures of one treatment's included trials; a killed trial has none."""
    blocks = included_by_block(run, treatment, response)
    return [value for values in blocks.values() for value in values]


def included_by_block(run: Run, treatment: Treatment, response: str) -> dict[int, list[float]]:
    """Return the figures of `included_values` by the number of their block."""
    found: dict[int, list[float]] = defaultdict(list)
    for trial in trials_of(run.trials, treatment):
        value = response_value(trial, response)
        if trial.is_included and not trial.is_killed and value is not None:
            found[trial.record.block].append(value)
    return found


def is_extrapolated(trial: JudgedTrial, response: str) -> bool:
    """Return whether the figure stands for more data than the trial read."""
    covered = trial.record.response.get("covered_fraction")
    totals = ("full_pass_seconds", "device_read_bytes", "device_reads")
    return response in totals and covered is not None and covered < 1


def make_cell(run: Run, treatment: Treatment, response: str) -> TreatmentCell:
    """Summarise the trials of one treatment."""
    trials = trials_of(run.trials, treatment)
    points = [t for t in trials if t.verdicts.is_data_point]
    included = [t for t in points if t.is_included]
    wrong = [t for t in trials if t.record.outcome == "wrong_answer"]
    shown = included or points or wrong
    values = [
        v for t in shown if not t.is_killed and (v := response_value(t, response)) is not None
    ]
    return TreatmentCell(
        treatment=treatment,
        response=response,
        summary=summarise(values) if values else None,
        killed=sum(t.is_killed for t in shown),
        excluded=sum(t.is_excluded for t in [*points, *wrong]),
        unanswered=_planned(run, treatment) - len(points) - len(wrong),
        unable=sum(t.record.outcome == "requirement_missed" for t in trials),
        is_extrapolated=any(is_extrapolated(t, response) for t in shown),
        is_all_excluded=bool(shown) and all(t.is_excluded for t in shown),
        answered=len(points),
        wrong=len(wrong),
        wrong_reason=wrong_answer_reason(wrong),
        unproven=sum(t.lacks_proof for t in included),
    )


def published_by_treatment(run: Run, response: str) -> dict[str, str]:
    """Return published figures by treatment label, as text."""
    return {
        label: format_published(claim["published"], claim["unit"])
        for label, claim in published_claims(run, response).items()
    }


def published_claims(run: Run, response: str) -> dict[str, Mapping[str, Any]]:
    """Return the first claim with a published figure of each treatment, by its label.

    Only claims about the response that select exactly one treatment are used.
    """
    planned = {treatment_label(treatment): treatment for treatment in map(dict, treatments(run))}
    found: dict[str, Mapping[str, Any]] = {}
    for claim in run.definition.get("claims", []):
        if claim["rule"] not in ("absolute", "range", "outcome") or claim.get("response") not in (
            response,
            "outcome",
        ):
            continue
        if claim.get("statistic", "median") != "median" or claim.get("per"):
            continue  # neither a median nor in the response's unit
        where = (claim.get("where") or {}).items()
        means = [
            name for name, treatment in planned.items() if where and where <= treatment.items()
        ]
        if len(means) == 1:
            found.setdefault(means[0], claim)
    return found


def _planned(run: Run, treatment: Treatment) -> int:
    return sum(dict(trial["treatment"]) == dict(treatment) for trial in run.plan["trials"])
