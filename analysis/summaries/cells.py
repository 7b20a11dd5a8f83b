"""One cell of a table: what the trials of one treatment say together, and what was left out of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.data.load import JudgedTrial, Run, Treatment
from analysis.formatting import label, published_figure, quantity, span
from analysis.stats.intervals import MedianSummary, summarise

_MOST_TOLD = 2
"""More wrong answers of one treatment tell nothing that the first have not told."""


@dataclass(frozen=True)
class TreatmentCell:
    """`summary` is over the included trials that have a figure; over excluded ones only where there are no others.

    `killed` counts trials the kernel killed for memory, `unanswered` those without an answer, `unable` those of them
    that the host lacks something for, `is_extrapolated` tells of figures that stand for a whole pass of which only a
    part was read. `wrong` counts trials whose answer was wrong, and `wrong_reason` says what was; their figures are
    shown, as such, only where there are no others.
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

    @property
    def text(self) -> str:
        """The cell in the fewest signs: `≈` extrapolated, `( )` resting on excluded trials alone, `–` no figure."""
        if self.summary is None:
            return self._wrapped("killed" if self.killed else "wrong answer") if self.killed or self.wrong else "–"
        figure = f"{'≈ ' if self.is_extrapolated else ''}{quantity(self.response, self.summary.middle)}"
        if self.is_all_wrong:
            return self._wrapped(f"wrong: {figure}")
        return self._wrapped(f"{figure}, {self.killed} killed" if self.killed else figure)

    @property
    def spread(self) -> str:
        """What stands under the figure: range or interval, how many trials, how many were left out."""
        parts = []
        if self.summary and self.summary.n > 1:
            low, high = (quantity(self.response, end) for end in (self.summary.low, self.summary.high))
            parts.append(f"{self.summary.kind} {span(low, high)}")
        answers = self.summary.n if self.summary else self.killed
        parts += [f"n {answers}"] if answers or not self.unanswered else []
        left_out = ((self.excluded, "excluded"), (self.unanswered - self.unable, "unanswered"))
        parts += [f"{n} {word}" for n, word in left_out if n]
        parts += ["the host lacks what it needs"] if self.unable else []
        rest = "" if self.is_all_wrong else f"{self.wrong} more with "
        parts += [f"{rest}{self.wrong_reason}"] if self.wrong else []
        return ", ".join(parts)

    @property
    def is_all_wrong(self) -> bool:
        """Whether nothing but wrong answers stands behind the figure."""
        return bool(self.wrong) and not self.answered

    def _wrapped(self, text: str) -> str:
        return f"({text}) †" if self.is_all_excluded else text


def treatments(run: Run) -> Iterator[Treatment]:
    """Every treatment that the plan holds, in the order of the definition's levels."""
    planned = [dict(trial["treatment"]) for trial in run.plan["trials"]]
    for levels in itertools.product(*run.factors.values()):
        treatment = dict(zip(run.factors, levels, strict=True))
        if treatment in planned:
            yield treatment


def matching(trials: Sequence[JudgedTrial], where: Treatment) -> list[JudgedTrial]:
    """The trials whose treatment has all levels named in `where`."""
    return [t for t in trials if all(t.record.treatment.get(k) == v for k, v in where.items())]


def counted(trials: Sequence[JudgedTrial], table: Mapping[str, Any]) -> list[JudgedTrial]:
    """The trials that a claim or a finding rests on: those averaged in, and wrong answers where it takes them."""
    return [t for t in trials if t.is_included or (t.is_wrong and table.get("with_wrong_answers"))]


def what_was_wrong(trials: Sequence[JudgedTrial]) -> str:
    """What the wrong answers among them were, each sentence once; empty where all were right."""
    told = dict.fromkeys(str(t.record.error).rstrip(".") for t in trials if t.record.outcome == "wrong_answer")
    return f"a wrong answer: {'; '.join(list(told)[:_MOST_TOLD])}" if told else ""


def is_among(planned: Sequence[Mapping[str, Any]], where: Treatment) -> bool:
    """Whether a plan holds a trial with all levels named in `where`."""
    return any(where.items() <= dict(trial["treatment"]).items() for trial in planned)


def figure(trial: JudgedTrial, response: str) -> float | None:
    """A trial's figure; a total that a cut-off pass did not finish is scaled to the whole pass."""
    value = trial.record.response.get(response)
    if value is None or response not in ("device_read_bytes", "device_reads"):
        return value
    covered = trial.record.response.get("covered_fraction")
    return value / covered if covered else None


def figures(run: Run, treatment: Treatment, response: str) -> list[float]:
    """What the included trials of one treatment have; a killed one has none."""
    trials = [t for t in matching(run.trials, treatment) if t.is_included and not t.is_killed]
    return [value for t in trials if (value := figure(t, response)) is not None]


def is_extrapolated(trial: JudgedTrial, response: str) -> bool:
    """Whether the figure stands for more than was read."""
    covered = trial.record.response.get("covered_fraction")
    totals = ("full_pass_seconds", "device_read_bytes", "device_reads")
    return response in totals and covered is not None and covered < 1


def make_cell(run: Run, treatment: Treatment, response: str) -> TreatmentCell:
    """Sum up the trials of one treatment."""
    trials = matching(run.trials, treatment)
    points = [t for t in trials if t.verdicts.is_data_point]
    included = [t for t in points if t.is_included]
    wrong = [t for t in trials if t.record.outcome == "wrong_answer"]
    shown = included or points or wrong
    values = [v for t in shown if not t.is_killed and (v := figure(t, response)) is not None]
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
        wrong_reason=what_was_wrong(wrong),
    )


def published_figures(run: Run, response: str) -> dict[str, str]:
    """Published figures by treatment: of claims about the response that mean one treatment and no other."""
    planned = {label(treatment): treatment for treatment in map(dict, treatments(run))}
    found: dict[str, str] = {}
    for claim in run.definition.get("claims", []):
        if claim["rule"] not in ("absolute", "range", "outcome") or claim.get("response") not in (response, "outcome"):
            continue
        where = (claim.get("where") or {}).items()
        means = [name for name, treatment in planned.items() if where and where <= treatment.items()]
        if len(means) == 1:
            found.setdefault(means[0], published_figure(claim["published"], claim["unit"]))
    return found


def _planned(run: Run, treatment: Treatment) -> int:
    return sum(dict(trial["treatment"]) == dict(treatment) for trial in run.plan["trials"])
