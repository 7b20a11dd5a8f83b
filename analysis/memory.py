"""The search of a program's memory: its table and its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from analysis.data.load import JudgedTrial, Run
from analysis.stats import median_of_known
from pagecage.memory_search.need import (
    MeasuredLevels,
    MemoryAnswer,
    SearchRule,
    no_answer,
    sentences,
)
from pagecage.memory_search.rounds import (
    FACTOR,
    SECOND_OPINION,
    answer_of_run,
    measured_levels,
    rule_of,
)
from pagecage.model.record import Record
from pagecage.model.run_files import read_lines
from pagecage.units import format_bytes, format_seconds
from pagecage.verdicts.counters import difference, final_counter, io_at
from pagecage.verdicts.evaluate import Verdicts


@dataclass(frozen=True)
class MemoryStep:
    """One MemoryMax with the medians of its trials; None if none is known.

    `limit_bytes` is None for the reference without a MemoryMax. `seconds` counts only trials that
    finished on a quiet host; `shown_seconds` is a time to show if none of them did, and
    `is_counted` tells them apart.
    """

    name: str
    limit_bytes: int | None
    trials: int
    seconds: float | None
    shown_seconds: float | None
    slowdown: float | None
    refaults_file: float | None
    refaults_anon: float | None
    major_faults: float | None
    read_bytes: float | None
    peak_bytes: float | None
    oom_kills: int
    outcome: str
    states: dict[str, str]

    @property
    def is_counted(self) -> bool:
        return self.seconds is not None

    @property
    def refaults(self) -> float | None:
        known = [n for n in (self.refaults_file, self.refaults_anon) if n is not None]
        return sum(known) if known else None


@dataclass(frozen=True)
class MemoryRun:
    """The steps of a search, the reference first and then the largest limits, and its answer."""

    rule: SearchRule
    answer: MemoryAnswer | None
    steps: tuple[MemoryStep, ...]
    sentences: tuple[str, ...]


def memory_run(run: Run) -> MemoryRun | None:
    rule = rule_of(run.plan)
    if rule is None:
        return None
    last = {trial.record.trial_id: trial.record for trial in run.trials}
    verdicts = {trial.record.trial_id: trial.verdicts for trial in run.trials}

    def judge(record: Record) -> Verdicts:
        return verdicts[record.trial_id]

    answer = answer_of_run(run.plan, last, judge)
    measured = measured_levels(run.plan, last, judge)
    steps = []
    for name in run.factors[FACTOR]:
        planned = [t for t in run.plan["trials"] if t["treatment"][FACTOR] == name]
        trials = [t for t in run.trials if t.record.treatment[FACTOR] == name]
        if trials and planned[0]["trial_id"] != SECOND_OPINION:
            limit = planned[0]["cage"]["properties"].get("MemoryMax")
            steps.append(_step(name, limit, trials, run.response, rule, measured))
    steps = sorted(steps, key=lambda step: (step is not steps[0], -(step.limit_bytes or 0)))
    if answer is None:
        killed = bool(measured and measured.reference.is_killed)
        return MemoryRun(rule, None, tuple(steps), (no_answer(killed),))
    first = run.plan["trials"][0]
    has_swap = first["cage"]["properties"].get("MemorySwapMax") != 0
    found = list(sentences(answer, rule, has_swap=has_swap))
    if opinion := second_opinion(run):
        found.append(opinion.sentence)
    if not (first["workload"].get("command") or {}).get("data_paths"):
        found.append(
            "No files were made cold (--cold). Pages that were in the page cache before are charged"
            " to no trial, and are not part of these figures."
        )
    return MemoryRun(rule, answer, tuple(steps), tuple(found))


@dataclass(frozen=True)
class SecondOpinion:
    """DAMON's estimate of the working set, in bytes; None with the reason for its absence."""

    median_bytes: float | None
    most_bytes: float | None
    intervals: int
    reason: str | None = None

    @property
    def sentence(self) -> str:
        if self.median_bytes is None or self.most_bytes is None:
            return f"No second opinion by DAMON: {self.reason}."
        return (
            f"Second opinion by DAMON: the program touched {format_bytes(self.median_bytes)} within"
            f" half a second through its mappings (median of {self.intervals} intervals; at most"
            f" {format_bytes(self.most_bytes)}). Files that it reads with read(2) are not seen."
        )


def second_opinion(run: Run) -> SecondOpinion | None:
    """Return DAMON's estimate; None before the trial that it watches has ended."""
    record = next((t.record for t in run.trials if t.record.trial_id == SECOND_OPINION), None)
    if record is None:
        return None
    rows = read_lines(run.path, record, "damon")
    begin, end = 0.0, float("inf")
    if record.measured:
        begin, end = record.measured.start_monotonic_seconds, record.measured.end_monotonic_seconds
    counts = [row["bytes"] for row in rows if begin <= row["t"] <= end and row["bytes"]]
    if not counts:
        entry = record.collectors.get("damon") or {}
        reason = entry.get("reason") or "no interval lies in the measured part"
        return SecondOpinion(None, None, 0, str(reason))
    return SecondOpinion(median(counts), max(counts), len(counts))


def _step(
    name: str,
    limit: int | None,
    trials: Sequence[JudgedTrial],
    response: str,
    rule: SearchRule,
    measured: MeasuredLevels | None,
) -> MemoryStep:
    records = [trial.record for trial in trials]
    levels = (*measured.levels, measured.reference) if measured else ()
    level = {one.limit_bytes: one for one in levels}.get(limit)

    def growth(key: str) -> float | None:
        return median_of_known(
            difference(record, "cgroup", "memory.stat", key) for record in records
        )

    return MemoryStep(
        name=name,
        limit_bytes=limit,
        trials=len(records),
        seconds=level.seconds if level else None,
        shown_seconds=median_of_known(record.response.get(response) for record in records),
        slowdown=measured.slowdown(level) if measured and level else None,
        refaults_file=growth("workingset_refault_file"),
        refaults_anon=growth("workingset_refault_anon"),
        major_faults=growth("pgmajfault"),
        read_bytes=median_of_known(io_at(record, "totals", "rbytes") for record in records),
        peak_bytes=median_of_known(final_counter(record, "memory.peak") for record in records),
        oom_kills=sum(final_counter(r, "memory.events", "oom_kill") or 0 for r in records),
        outcome=", ".join(dict.fromkeys(record.outcome for record in records)),
        states={
            criterion: measured.state(level, criterion, rule)
            for criterion in ("time", "refaults")
            if measured and level
        },
    )


def step_rows(found: MemoryRun) -> list[dict[str, str]]:
    hidden = {
        "anonymous": not any(step.refaults_anon for step in found.steps),
        "OOM kills": not any(step.oom_kills for step in found.steps),
    }

    def shown(value: float | None, text: Callable[[float], str]) -> str:
        return "–" if value is None else text(value)

    rows, count = [], "{:,.0f}".format
    for step in found.steps:
        time = _described(step)
        if step.seconds is not None:
            time = format_seconds(step.seconds)
        elif step.shown_seconds is not None:
            time = f"({format_seconds(step.shown_seconds)}) †"
        row = {
            "MemoryMax": format_bytes(step.limit_bytes) if step.limit_bytes else "none",
            "time": time,
            "loss": shown(step.slowdown, lambda share: f"{100 * share:+.1f} %"),
            "refaults": shown(step.refaults_file, count),
            "anonymous": shown(step.refaults_anon, count),
            "major faults": shown(step.major_faults, count),
            "read": shown(step.read_bytes, format_bytes),
            "peak": shown(step.peak_bytes, format_bytes),
            "OOM kills": str(step.oom_kills or "–"),
            "enough": _enough(step),
        }
        rows.append({title: text for title, text in row.items() if not hidden.get(title)})
    return rows


def _enough(step: MemoryStep) -> str:
    by_state: dict[str, list[str]] = {}
    for criterion, state in step.states.items():
        by_state.setdefault(state, []).append(criterion)
    parts = [
        f"{word} for {' and '.join(by_state[state])}"
        for state, word in (("short", "not"), ("unknown", "unknown"))
        if state in by_state
    ]
    return "; ".join(parts) or ("yes" if set(by_state) == {"enough"} else "–")


def _described(step: MemoryStep) -> str:
    if step.outcome != "ok" or step.shown_seconds is None:
        return step.outcome.replace("_", " ")
    return format_seconds(step.shown_seconds)


def memory_json(run: Run) -> dict[str, Any] | None:
    found = memory_run(run)
    if found is None:
        return None
    return {
        "rule": asdict(found.rule),
        "sentences": list(found.sentences),
        "answer": asdict(found.answer) if found.answer else None,
        "second_opinion": asdict(opinion) if (opinion := second_opinion(run)) else None,
        "page_bytes": run.page_bytes,
        "steps": [asdict(step) for step in found.steps],
    }


Point = tuple[float, MemoryStep]


def memory_points(found: MemoryRun) -> list[Point]:
    """Return the steps by the memory that they may use, least first."""
    used = found.answer.used_bytes if found.answer else None
    placed = [(step.limit_bytes or used, step) for step in found.steps]
    points = [(size, step) for size, step in placed if size is not None]
    if used is not None:
        points = [(min(size, used), step) for size, step in points]
    return sorted(points, key=lambda point: point[0])


def memory_alt_text(found: MemoryRun) -> str:
    parts = [
        f"{_described(step)} at {format_bytes(size)}"
        for size, step in (memory_points(found)[0], memory_points(found)[-1])
    ]
    return f"Time and refaults over MemoryMax: {', '.join(parts)}. {' '.join(found.sentences)}"
