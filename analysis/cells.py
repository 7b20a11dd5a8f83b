"""Cells of a result table: a treatment's trials, their median, proof and diagnosis."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from analysis.data.load import Claim, JudgedTrial, Run, Treatment
from analysis.formatting import format_interval, format_published, tally, treatment_label
from analysis.stats import FEWEST, RANGE, MedianSummary, blocked_ratio, summarise
from pagecage.verdicts.diagnosis import Diagnosis
from pagecage.verdicts.repeats import setting_differences

MARK = "°"
"""The mark of a figure that includes trials without proof."""


def has_gap(trials: Iterable[JudgedTrial]) -> bool:
    return any(trial.lacks_proof for trial in trials)


def gap_sentence(run: Run) -> str:
    """Return the meaning of the mark, with the numbers of trials; empty if none has a gap."""
    included = [trial for trial in run.trials if trial.is_included]
    quiet = sum(trial.verdicts.host_quiet.verdict == "unknown" for trial in included)
    limits = sum(trial.has_unproven_limit for trial in included)
    parts = [f"of {quiet} it is not known whether the host was quiet"] if quiet else []
    parts += [f"{limits} never reached one of their limits"] if limits else []
    return f"{MARK} trials without proof are averaged in: {', and '.join(parts)}" if parts else ""


def repeat_differences(run: Run) -> Iterator[str]:
    groups: dict[str, list[JudgedTrial]] = defaultdict(list)
    for trial in run.trials:
        if trial.verdicts.is_data_point:
            groups[treatment_label(trial.record.treatment)].append(trial)
    for label, trials in groups.items():
        if differing := sum(t.verdicts.output.verdict == "differs" for t in trials):
            yield (
                f"{label}: the standard output of {differing} of {len(trials)} repeats"
                " differs; --same-output excludes such trials"
            )
        for sentence in setting_differences([trial.record for trial in trials]):
            yield f"{label}: {sentence}"


def cache_state_tally(trials: Iterable[JudgedTrial]) -> str:
    """Return the verdicts on the cache state, each with the caches that may still be warm."""
    words = []
    for trial in trials:
        record, cache = trial.record, trial.record.cache
        word, notes = trial.verdicts.cache_state_reached.verdict.replace("_", " "), []
        if cache.requested == "cold":
            notes = [f"metadata {cache.metadata}"] if cache.metadata else []
            kinds = (str(layer["kind"]) for layer in record.device.caches_below or ())
            notes += [f"above {kind}" for kind in dict.fromkeys(kinds)]
        words.append(f"{word} ({', '.join(notes)})" if notes else word)
    return tally(words)


@dataclass(frozen=True)
class CommonSpread:
    """The number of trials and the kind of interval that most figures of a table have."""

    n: int
    kind: str
    is_of_all: bool

    @property
    def sentence(self) -> str:
        exceptions = "" if self.is_of_all else " unless noted"
        if self.n == 1:
            return f"one trial each{exceptions}"
        kind = "range" if self.kind == RANGE else f"{self.kind} interval"
        return f"medians; below, the {kind} of {self.n} trials{exceptions}"


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
        if self.summary is None and not (self.killed or self.wrong):
            return "–"
        if self.summary is None:
            text = "killed" if self.killed else "wrong answer"
        else:
            sign = "≈ " if self.is_extrapolated else ""
            text = f"{sign}{format_interval(self.response, self.summary)[0]}"
            if self.is_all_wrong:
                text = f"wrong: {text}"
            else:
                text += f" {MARK}" if self.unproven else ""
                text += f", {self.killed} killed" if self.killed else ""
        return f"({text}) †" if self.is_all_excluded else text

    @property
    def spread(self) -> str:
        return self.note(None)

    def note(self, common: CommonSpread | None, *, has_footnote: bool = False) -> str:
        """Return the spread without what most cells of a table have in common.

        With `has_footnote` the table says itself why the host could not run trials.
        """
        parts = []
        if self.summary and self.summary.n > 1:
            is_same = common and common.kind == self.summary.kind
            kind = "" if is_same else f"{self.summary.kind} "
            parts.append(kind + format_interval(self.response, self.summary)[1])
        answers = self.summary.n if self.summary else self.killed
        is_common = bool(common and common.n == answers)
        parts += [f"n {answers}"] if not is_common and (answers or not self.unanswered) else []
        parts += [f"{self.unproven} without proof"] if self.unproven and not common else []
        left_out = ((self.excluded, "excluded"), (self.unanswered - self.unable, "unanswered"))
        parts += [f"{n} {word}" for n, word in left_out if n]
        parts += ["the host lacks a requirement"] if self.unable and not has_footnote else []
        rest = "" if self.is_all_wrong else f"{self.wrong} more with "
        parts += [f"{rest}{self.wrong_reason}"] if self.wrong else []
        return ", ".join(parts)

    @property
    def is_all_wrong(self) -> bool:
        return bool(self.wrong) and not self.answered


def common_spread(cells: Iterable[TreatmentCell]) -> CommonSpread | None:
    """Return what the spread of most figures has in common; None if there is nothing."""
    found = Counter((cell.summary.n, cell.summary.kind) for cell in cells if cell.summary)
    for (n, kind), count in found.most_common(1):
        if 2 * count > found.total():
            return CommonSpread(n, kind, is_of_all=len(found) == 1)
    return None


_SIGNS = {
    "killed": "killed: for want of memory",
    "≈": "≈: scaled to all data, because the time ran out",
    "wrong": "wrong: a wrong answer",
    "†": "( ) †: excluded trials alone",
    MARK: f"{MARK}: without full proof",
}


def legend(cells: Iterable[TreatmentCell]) -> list[str]:
    texts = [cell.text for cell in cells]
    return [meaning for sign, meaning in _SIGNS.items() if any(sign in text for text in texts)]


def unable_by_reason(run: Run) -> dict[str, list[str]]:
    """Return, by the reason, the labels of the treatments that the host could not run."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for trial in run.trials:
        if trial.record.outcome == "requirement_missed":
            reasons = "; ".join(one.reason for one in trial.record.missed_requirements)
            reasons = reasons or str(trial.record.error or "no reason was recorded")
            found[reasons][treatment_label(trial.record.treatment)] = None
    return {reason: list(labels) for reason, labels in found.items()}


_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Footnotes:
    """Footnotes of a table of runs, one for each reason for which a host could not run trials.

    `marks` has their numbers, as "¹", by the number of the run and the label of the treatment.
    """

    notes: tuple[str, ...]
    marks: Mapping[tuple[int, str], str]

    def marked(self, text: str, treatment: Treatment, run: int = 0) -> str:
        return f"{text} {self.marks.get((run, treatment_label(treatment)), '')}".rstrip()


def footnotes(*runs: Run) -> Footnotes:
    numbers, marks = dict[str, str](), dict[tuple[int, str], str]()
    for place, run in enumerate(runs):
        for reason, labels in unable_by_reason(run).items():
            mark = numbers.setdefault(reason, str(len(numbers) + 1).translate(_SUPERSCRIPT))
            for label in labels:
                before = marks.get((place, label))
                marks[place, label] = f"{before} {mark}" if before else mark
    notes = (f"{mark} the host lacks a requirement: {one}" for one, mark in numbers.items())
    return Footnotes(tuple(notes), marks)


def treatments(run: Run) -> Iterator[Treatment]:
    """Yield the planned treatments in the order of the definition's levels."""
    planned = [dict(trial["treatment"]) for trial in run.plan["trials"]]
    for levels in itertools.product(*run.factors.values()):
        treatment = dict(zip(run.factors, levels, strict=True))
        if treatment in planned:
            yield treatment


def varying_label(run: Run, treatment: Treatment) -> str:
    """Return a treatment's label without the levels that all treatments of the run share."""
    constant = run.layout.constant
    return treatment_label({name: one for name, one in treatment.items() if name not in constant})


def trials_of(trials: Sequence[JudgedTrial], where: Treatment) -> list[JudgedTrial]:
    return [t for t in trials if all(t.record.treatment.get(k) == v for k, v in where.items())]


def claim_trials(trials: Sequence[JudgedTrial], table: Claim) -> list[JudgedTrial]:
    return [t for t in trials if t.is_included or (t.is_wrong and table.get("with_wrong_answers"))]


def wrong_answer_reason(trials: Sequence[JudgedTrial]) -> str:
    messages = dict.fromkeys(
        str(t.record.error).rstrip(".") for t in trials if t.record.outcome == "wrong_answer"
    )
    return f"a wrong answer: {'; '.join(list(messages)[:2])}" if messages else ""


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
    found: dict[int, list[float]] = defaultdict(list)
    for trial in trials_of(run.trials, treatment):
        value = response_value(trial, response)
        if trial.is_included and not trial.is_killed and value is not None:
            found[trial.record.block].append(value)
    return found


def is_extrapolated(trial: JudgedTrial, response: str) -> bool:
    covered = trial.record.response.get("covered_fraction")
    totals = ("full_pass_seconds", "device_read_bytes", "device_reads")
    return response in totals and covered is not None and covered < 1


def make_cell(run: Run, treatment: Treatment, response: str) -> TreatmentCell:
    trials = trials_of(run.trials, treatment)
    points = [t for t in trials if t.verdicts.is_data_point]
    included = [t for t in points if t.is_included]
    wrong = [t for t in trials if t.record.outcome == "wrong_answer"]
    shown = included or points or wrong
    values = [
        v for t in shown if not t.is_killed and (v := response_value(t, response)) is not None
    ]
    planned = sum(dict(trial["treatment"]) == dict(treatment) for trial in run.plan["trials"])
    return TreatmentCell(
        treatment=treatment,
        response=response,
        summary=summarise(values) if values else None,
        killed=sum(t.is_killed for t in shown),
        excluded=sum(t.is_excluded for t in [*points, *wrong]),
        unanswered=planned - len(points) - len(wrong),
        unable=sum(t.record.outcome == "requirement_missed" for t in trials),
        is_extrapolated=any(is_extrapolated(t, response) for t in shown),
        is_all_excluded=bool(shown) and all(t.is_excluded for t in shown),
        answered=len(points),
        wrong=len(wrong),
        wrong_reason=wrong_answer_reason(wrong),
        unproven=sum(t.lacks_proof for t in included),
    )


def main_cells(run: Run) -> list[TreatmentCell]:
    return [make_cell(run, treatment, run.response) for treatment in treatments(run)]


_NUMBERS = ("killed", "excluded", "unanswered", "is_extrapolated", "is_all_excluded", "unproven")


def median_table(run: Run, response: str) -> tuple[list[str], list[list[Any]]]:
    """Return the titles and rows of a table of medians: levels, figures, and numbers of trials.

    A row is one treatment. Figures are in the response's own unit, and None without a figure.
    """
    figures = ("response", "median", "low", "high", "kind", "n")
    rows = []
    for treatment in treatments(run):
        cell = make_cell(run, treatment, response)
        one = cell.summary
        values = [one.middle, one.low, one.high, one.kind, one.n] if one else [*[None] * 4, 0]
        numbers = [getattr(cell, name) for name in _NUMBERS]
        rows.append([*treatment.values(), response, *values, *numbers])
    return [*run.factors, *figures, *_NUMBERS], rows


def published_by_treatment(run: Run, response: str) -> dict[str, str]:
    return {
        label: format_published(claim["published"], claim["unit"])
        for label, claim in published_claims(run, response).items()
    }


def published_claims(run: Run, response: str) -> dict[str, Claim]:
    """Return the first claim with a published figure of each treatment, by its label.

    Only claims about the response that select exactly one treatment are used, and no claim that is
    neither a median nor in the response's unit.
    """
    planned = {treatment_label(treatment): treatment for treatment in map(dict, treatments(run))}
    found: dict[str, Claim] = {}
    for claim in run.definition.get("claims", []):
        is_figure = claim["rule"] in ("absolute", "range", "outcome")
        is_about = claim.get("response") in (response, "outcome")
        is_median = claim.get("statistic", "median") == "median" and not claim.get("per")
        where = (claim.get("where") or {}).items()
        if where and is_figure and is_about and is_median:
            means = [name for name, treatment in planned.items() if where <= treatment.items()]
            if len(means) == 1:
                found.setdefault(means[0], claim)
    return found


_IDENTITY = frozenset({"trial_id", "treatment", "repeat", "block", "position"})


@dataclass(frozen=True)
class NoiseFloor:
    """The relative difference between identical trials; a `share` of 0.05 is 5 %.

    `kind` names the trials. `a_a_pair`: two treatments with different names and the same program,
    cage, cache and data in the plan, or whose levels the definition declares identical. `range`:
    two to four repeats of one treatment, from the least to the largest.
    """

    share: float
    kind: str


def noise_floor(run: Run, treatment: Treatment, response: str) -> NoiseFloor | None:
    """Return the larger of what a treatment's A/A pairs show and of the range of few repeats.

    None if neither shows a difference that the repeats themselves do not explain: the pair is
    compared as any two treatments of a run are, and the interval contains 1.
    """
    floors = [noise_of(included_values(run, treatment, response))]
    for identical in identical_treatments(run, treatment):
        one, other = (included_by_block(run, t, response) for t in (treatment, identical))
        sides = [list(itertools.chain.from_iterable(side.values())) for side in (one, other)]
        if all(side and min(side) > 0 for side in sides):
            rows = [[median(one[key]), median(other[key])] for key in one if key in other]
            ratio = blocked_ratio(sides, rows)
            if ratio.kind == RANGE or not ratio.low <= 1 <= ratio.high:
                share = max(ratio.middle, 1 / ratio.middle) - 1
                floors.append(NoiseFloor(share, "a_a_pair"))
    return largest_floor(floors)


def largest_floor(floors: Sequence[NoiseFloor | None]) -> NoiseFloor | None:
    return max((floor for floor in floors if floor), key=lambda one: one.share, default=None)


def noise_of(values: Sequence[float]) -> NoiseFloor | None:
    """Return the range of two to four positive repeats, of which no test makes an interval."""
    if not 2 <= len(values) < FEWEST or min(values) <= 0:
        return None
    return NoiseFloor(max(values) / min(values) - 1, RANGE)


def identical_treatments(run: Run, treatment: Treatment) -> list[Treatment]:
    """Return the treatments whose planned trials are equal apart from their names and order.

    Treatments follow that differ only in levels that the definition declares `identical`.
    """
    own, planned = dict(treatment), [dict(trial["treatment"]) for trial in run.plan["trials"]]
    contents = [
        json.dumps({k: v for k, v in trial.items() if k not in _IDENTITY}, sort_keys=True)
        for trial in run.plan["trials"]
    ]
    found: list[Treatment] = []
    first = next((one for one, of in zip(contents, planned, strict=True) if of == own), None)
    for content, other in zip(contents, planned, strict=True):
        if content == first and other != own and other not in found:
            found.append(other)
    for table in run.definition.get("identical") or []:
        for factor, levels in table.items():
            for level in levels if own.get(factor) in levels else ():
                other = {**own, factor: level}
                if level != own[factor] and other in planned and other not in found:
                    found.append(other)
    return found


@dataclass(frozen=True)
class BindingCause:
    """A binding limit, with the diagnosis of each treatment that it held back."""

    words: str
    diagnoses: tuple[tuple[Treatment, Diagnosis], ...]

    @property
    def share(self) -> str:
        """The share of the time in which it held the treatments back; empty if it is not known."""
        shares = [f"{100 * one.share:.0f}" for _, one in self.diagnoses if one.share is not None]
        ends = sorted(set(shares), key=int)
        joined = ends[0] if len(ends) == 1 else f"{ends[0]} to {ends[-1]}" if ends else ""
        return f"{joined} % of the time" if joined else ""

    @property
    def text(self) -> str:
        return ", ".join(filter(None, (self.words, self.share)))

    @property
    def worst(self) -> tuple[Treatment, Diagnosis]:
        """The treatment that it held back for the greatest share of the time."""
        return max(self.diagnoses, key=lambda pair: pair[1].share or 0)


_CAUSES = {"iops": "IOPS", "cpu": "none, but the CPU", "device": "none, but the disk itself"}
"""Binding limits, as they stand after the word `limit`, if that is not their own name."""


def causes(run: Run) -> list[BindingCause]:
    found: dict[str, list[tuple[Treatment, Diagnosis]]] = defaultdict(list)
    for treatment, one in diagnosis_by_treatment(run):
        words = _CAUSES.get(one.bound_by, one.bound_by.replace("_", " "))
        place = " of ".join(filter(None, (one.property, one.disk and f"disk {one.disk}")))
        found[f"{words} ({place})" if place else words].append((treatment, one))
    made = [BindingCause(words, tuple(diagnoses)) for words, diagnoses in found.items()]
    return sorted(made, key=lambda cause: -len(cause.diagnoses))


def diagnosis_by_treatment(run: Run) -> Iterator[tuple[Treatment, Diagnosis]]:
    """Yield each treatment that has limits with the diagnosis of its median trial.

    Disabled swap alone is no limit.
    """
    for treatment in treatments(run):
        caged = [
            t
            for t in trials_of(run.trials, treatment)
            if t.verdicts.is_data_point
            and (set(t.record.cage.requested or {}) - {"MemorySwapMax"} or t.record.disks)
        ]
        counted = [t for t in caged if t.is_included] or caged
        counted.sort(key=lambda t: t.record.measured.seconds if t.record.measured else 0.0)
        if counted:
            yield treatment, counted[(len(counted) - 1) // 2].verdicts.diagnosis


def fidelity_lines(run: Run) -> list[str]:
    """Return how closely the trials followed the provider's behaviour, a line per aspect."""
    found: dict[str, None] = {}
    for trial in run.trials:
        disks = trial.record.disks.items()
        cages = [("", trial.record.cage), *((f"disk {name}, ", one.cage) for name, one in disks)]
        for where, cage in cages:
            for one in cage.fidelity or ():
                aspect = one["aspect"].replace("_", " ")
                found[f"{where}{aspect} {one['state']}: {one['reason']}"] = None
    return list(found)


def stopping_rule_status(run: Run) -> str:
    plan, width = run.plan, f"{100 * run.plan['until_ci']:.3g} %"
    rule = f"repeat until every interval is within {width} of its median"
    rule += f", {plan['repeats']} times at most"
    is_over = len(run.trials) == len(plan["trials"])
    if is_over and not run.too_wide:
        return f"{rule}: reached after {max(trial['block'] for trial in plan['trials'])}"
    wide = [
        f"{' · '.join(name)} {'none' if share is None else f'{100 * share:.3g} %'}"
        for name, share in run.too_wide.items()
    ]
    status = "not reached" if is_over else "not yet"
    return f"{rule}: {status}{': ' if wide else ''}{', '.join(wide)}"
