"""The stopping rule of `--until-ci`: the blocks of a plan that a run still needs.

The plan holds the rule (`until_ci`) and trials up to the largest number of repeats. The records
decide how many of them are needed; the result is never stored. See docs/decisions/.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import takewhile

from pagecage.model.record import Record
from pagecage.model.run_files import Document
from pagecage.verdicts.evaluate import Judge
from pagecage.verdicts.repeats import FEWEST, half_width

NO_FIGURE = frozenset({"oom_killed", "requirement_missed"})
"""Outcomes that have no figure, however many repeats there are."""
DEFAULT_RESPONSE = "read_seconds"


def enough_blocks(document: Document, last: Mapping[str, Record], judge: Judge) -> int | None:
    """Return the fewest blocks whose intervals are all as narrow as the plan requires.

    None if no number of blocks is enough yet, or if the plan has no `until_ci`. `document` is
    plan.json; `last` is the last record of each trial, by trial id; `judge` gives the verdicts on
    it. A block counts if each of its trials has a record. Every interval needs at least six blocks.
    """
    if not document.get("until_ci"):
        return None
    found: dict[int, list[Document]] = defaultdict(list)
    for trial in document["trials"]:
        found[trial["block"]].append(trial)
    blocks = [found[number] for number in sorted(found)]
    has_records = (all(trial["trial_id"] in last for trial in block) for block in blocks)
    recorded = sum(1 for _ in takewhile(bool, has_records))
    for count in range(FEWEST, recorded + 1):
        trials = [trial for block in blocks[:count] for trial in block]
        treatments = _by_treatment(trials, last).values()
        if all(_is_enough(records, document, judge) for records in treatments):
            return count
    return None


def too_wide(
    document: Document, last: Mapping[str, Record], judge: Judge
) -> dict[tuple[str, ...], float | None]:
    """Return the treatments whose interval is too wide, each with its half width.

    A half width is a share of the median; None if there is no interval. Empty if the plan has no
    `until_ci`.
    """
    if not document.get("until_ci"):
        return {}
    trials = [trial for trial in document["trials"] if trial["trial_id"] in last]
    found = _by_treatment(trials, last).items()
    return {
        name: _half_width(records, document, judge)
        for name, records in found
        if not _is_enough(records, document, judge)
    }


def needed(document: Document, last: Mapping[str, Record], judge: Judge) -> list[Document]:
    """Return the plan's trials without those of the blocks that the rule does not need."""
    enough = enough_blocks(document, last, judge)
    return [trial for trial in document["trials"] if enough is None or trial["block"] <= enough]


def _by_treatment(
    trials: Sequence[Document], last: Mapping[str, Record]
) -> dict[tuple[str, ...], list[Record]]:
    found: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for trial in trials:
        found[tuple(trial["treatment"].values())].append(last[trial["trial_id"]])
    return found


def _is_enough(records: Sequence[Record], document: Document, judge: Judge) -> bool:
    if len(records) >= FEWEST and all(record.outcome in NO_FIGURE for record in records):
        return True
    width = _half_width(records, document, judge)
    return width is not None and width <= document["until_ci"]


def _half_width(records: Sequence[Record], document: Document, judge: Judge) -> float | None:
    """Return that of the figures that a table would average: those of data points that count."""
    response, figures = document["definition"].get("response", DEFAULT_RESPONSE), []
    for record in records:
        value, verdicts = record.response.get(response), judge(record)
        is_counted = verdicts.is_data_point and not verdicts.excluded
        if value is not None and is_counted and record.outcome != "oom_killed":
            figures.append(value)
    return half_width(figures)
