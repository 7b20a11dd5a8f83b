"""Repeats until intervals are narrow: which blocks of a plan a run needs, worked out from its records and never stored.

The rule stands in the plan (`until_ci`), whose trials go up to the bound; docs/decisions/ says why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pagecage.model.record import Record
from pagecage.verdicts.evaluate import judge
from pagecage.verdicts.median_interval import FEWEST, half_width

NO_FIGURE = frozenset({"oom_killed", "requirement_missed"})
"""Outcomes that more repeats do not turn into a figure."""
DEFAULT_RESPONSE = "read_seconds"
Document = Mapping[str, Any]


def enough_blocks(document: Document, last: Mapping[str, Record]) -> int | None:
    """The fewest blocks after which every treatment's interval is as narrow as the plan asks; None while none is.

    `document` is plan.json, `last` the last record of each trial. A plan without `until_ci` never has enough.
    A block counts once each of its trials has a record; the first six are needed by every interval.
    """
    if not document.get("until_ci"):
        return None
    blocks = _blocks(document)
    whole = next((n for n, block in enumerate(blocks) if any(t["trial_id"] not in last for t in block)), len(blocks))
    for count in range(FEWEST, whole + 1):
        trials = [trial for block in blocks[:count] for trial in block]
        if all(_is_enough(records, document) for records in _by_treatment(trials, last).values()):
            return count
    return None


def too_wide(document: Document, last: Mapping[str, Record]) -> dict[tuple[str, ...], float | None]:
    """Treatments whose interval is wider than asked, with its half width as a share; None where it has none.

    A plan without `until_ci` asks nothing.
    """
    if not document.get("until_ci"):
        return {}
    trials = [trial for trial in document["trials"] if trial["trial_id"] in last]
    found = _by_treatment(trials, last).items()
    return {name: _width(records, document) for name, records in found if not _is_enough(records, document)}


def needed(document: Document, last: Mapping[str, Record]) -> list[Mapping[str, Any]]:
    """The plan's trials without those of blocks that the rule made needless."""
    enough = enough_blocks(document, last)
    return [trial for trial in document["trials"] if enough is None or trial["block"] <= enough]


def _blocks(document: Document) -> list[list[Mapping[str, Any]]]:
    found: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for trial in document["trials"]:
        found[trial["block"]].append(trial)
    return [found[number] for number in sorted(found)]


def _by_treatment(
    trials: Sequence[Mapping[str, Any]], last: Mapping[str, Record]
) -> dict[tuple[str, ...], list[Record]]:
    found: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for trial in trials:
        found[tuple(trial["treatment"].values())].append(last[trial["trial_id"]])
    return found


def _is_enough(records: Sequence[Record], document: Document) -> bool:
    """Narrow enough, or of a kind that has no figure however often it is repeated."""
    if len(records) >= FEWEST and all(record.outcome in NO_FIGURE for record in records):
        return True
    width = _width(records, document)
    return width is not None and width <= document["until_ci"]


def _width(records: Sequence[Record], document: Document) -> float | None:
    return half_width(list(_figures(records, document["definition"].get("response", DEFAULT_RESPONSE))))


def _figures(records: Sequence[Record], response: str) -> Iterator[float]:
    """What the table would average: figures of trials that are data points and that nothing excludes."""
    for record in records:
        value, verdicts = record.response.get(response), judge(record)
        if value is not None and verdicts.is_data_point and not verdicts.excluded and record.outcome != "oom_killed":
            yield value
