"""What the experiment itself found: its sentences, with the figure measured, or why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.claims.comparability import obstacle
from analysis.claims.evaluate import EXTRAPOLATED, answer, missing
from analysis.claims.kernel_trace import DECODED, seen
from analysis.data.load import JudgedTrial, Run
from analysis.formatting import told
from analysis.stats.intervals import MedianSummary, ratio, summarise
from analysis.summaries.cells import counted, is_extrapolated, matching, what_was_wrong

_NO_VALUE = "…"
_EMULATED = "mostly the emulated CPU's time"
_UNPROVEN = "† rests on excluded trials alone, so that it proves nothing"


@dataclass(frozen=True)
class Finding:
    """One sentence of the answer. `value` is the figure as text, None where it was not measured; `note` limits it.

    A figure that rests on excluded trials alone stands in brackets and `is_proven` is False.

    `middle`, `low`, `high` are in the response's own unit, or a ratio.
    """

    question: str
    sentence: str
    value: str | None
    middle: float | None
    low: float | None
    high: float | None
    n: int
    note: str
    is_proven: bool


def find(run: Run) -> list[Finding]:
    """Every finding of the definition, in its order."""
    return [_find(run, table) for table in run.definition.get("findings", [])]


def _find(run: Run, table: Mapping[str, Any]) -> Finding:
    sides = [matching(run.trials, table.get("where") or {})]
    if table.get("over"):
        sides.append(matching(run.trials, table["over"]))
    kept = [counted(side, table) for side in sides]
    response = table["response"]
    if response == "outcome" or response in DECODED:
        whole = [trial for trial in sides[0] if trial.is_whole]
        ends = counted(sides[0], {"with_wrong_answers": True})
        value = _words(ends) if response == "outcome" else _decoded(run, whole, response)
        return _finding(table, value, None, "" if value else missing(run, table, sides[:1], kept[:1]))
    summary = _summary(kept, response)
    if summary:
        return _finding(table, told(response, summary, is_ratio=len(sides) > 1), summary, _note(run, response, kept))
    points = [[trial for trial in side if _is_point(trial, table)] for side in sides]
    unproven = _summary(points, response)
    if unproven is None:
        return _finding(table, None, None, missing(run, table, sides, kept))
    value = f"({told(response, unproven, is_ratio=len(sides) > 1)}) †"
    return _finding(table, value, unproven, _UNPROVEN, is_proven=False)


def _is_point(trial: JudgedTrial, table: Mapping[str, Any]) -> bool:
    """Whether it has a figure to be shown, excluded or not."""
    is_taken = bool(table.get("with_wrong_answers")) and trial.record.outcome == "wrong_answer"
    return trial.verdicts.is_data_point or is_taken


def _summary(kept: Sequence[Sequence[JudgedTrial]], response: str) -> MedianSummary | None:
    values = [[v for trial in side if (v := answer(trial, response)) is not None] for side in kept]
    if not all(values):
        return None
    return ratio(values[0], values[1]) if len(values) > 1 else summarise(values[0])


def _note(run: Run, response: str, kept: Sequence[Sequence[JudgedTrial]]) -> str:
    hindered = obstacle(run, {"needs": "any_size", "response": response}, kept)
    partial = any(is_extrapolated(trial, response) for side in kept for trial in side)
    wrong = what_was_wrong([trial for side in kept for trial in side])
    parts = [_EMULATED if hindered else "", EXTRAPOLATED if partial else "", wrong]
    return "; ".join(part for part in parts if part)


def _words(kept: Sequence[JudgedTrial]) -> str | None:
    if not kept:
        return None
    words = Counter("killed" if trial.is_killed else trial.record.outcome.replace("_", " ") for trial in kept)
    return ", ".join(f"{word} {n} of {len(kept)} times" for word, n in words.most_common())


def _decoded(run: Run, kept: Sequence[JudgedTrial], response: str) -> str | None:
    found = seen(run, kept, response)
    if not found:
        return None
    words, names = found
    told_words = [" ".join(names.get(word) or [f"{word:,}"]) for word, _ in words.most_common(3)]
    return ", ".join(told_words) or "none"


def _finding(
    table: Mapping[str, Any], value: str | None, summary: MedianSummary | None, note: str, *, is_proven: bool = True
) -> Finding:
    if value and "{value} times" in table["says"]:
        value = value.replace("×", "")
    return Finding(
        question=table.get("question", ""), sentence=table["says"].replace("{value}", value or _NO_VALUE), value=value,
        middle=summary.middle if summary else None, low=summary.low if summary else None,
        high=summary.high if summary else None, n=summary.n if summary else 0, note=note,
        is_proven=is_proven and value is not None,
    )  # fmt: skip
