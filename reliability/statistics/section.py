"""The section of docs/TRUST.md about statistics: the rules before and now, side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from analysis.stats import FEWEST
from pagecage.report.model import markdown_table

NOW, BEFORE = "statistics.json", "statistics-before.json"
Row = Mapping[str, Any]
Share = Callable[[Row], float]
_ALARMS = """Pairs of samples of equal distributions were compared as `pagecage compare` does with
two runs. The distributions are {kinds}. A cell has the least and the largest share of these, in %:
by the rule of commit `{commit}`, then by the present one. An interval of a median should contain
that of the distribution, one of a ratio 1. Those of fewer than six values are called `range` and
promise nothing.
"""
_POWER = """The second sample was made slower. A cell has the share of pairs that is called higher,
in %, as the median of the distributions: by the earlier rule, by the present one, and in brackets
by the test of Mann and Whitney (two-sided, 5 %, exact, by scipy). From {fewest} repeats on, the
present rule finds {least:+.1f} to {most:+.1f} points more than the test.
"""
_WITHIN = """Two treatments of one run are compared by the differences within its blocks. A block
has a trial of each, in random order, with noise of 2 %. A cell has the share that is called higher
if the second is {slowdown} slower, written as above. Mann and Whitney's test does not know the
blocks. Of equal treatments, {least:.1f} to {most:.1f} % are called different.
"""


def statistics_summary(results: Path) -> Iterator[str]:
    """Yield the summary of false alarms and power."""
    now, _ = _read(results)
    equal = [_different(row) for row in _trusted(now["between"], 1)]
    least, most = _beyond_the_test(now["between"])
    yield (
        f"**Comparisons** call {min(equal):.1f} to {max(equal):.1f} % of equal runs different, from"
        f" {FEWEST} repeats on, and find {least:+.1f} to {most:+.1f} points more slow-downs than"
        " the test of Mann and Whitney."
    )


def statistics_sections(results: Path) -> Iterator[str]:
    now, before = _read(results)
    between = now["between"]
    kinds = ", ".join(dict.fromkeys(f"`{row['noise']}`" for row in between))
    yield "## False alarms\n"
    yield _ALARMS.format(kinds=kinds, commit=before["commit"])
    parts: Mapping[str, tuple[str, float | None, Share]] = {
        "called different": ("between", 1, _different),
        "a gate `> +5%` fails": ("between", 1, _gate_failed),
        "medians in their interval": ("coverage", None, _covering),
        "ratios in their interval": ("coverage", None, _ratios_covering),
    }
    counts = sorted({row["repeats"] for row in now["between"]})
    rows = []
    for title, (part, slowdown, share) in parts.items():
        sides = [_of(found[part], slowdown) for found in (before, now)]
        cells = [" → ".join(_range(side, share, count) for side in sides) for count in counts]
        rows.append([title, *cells])
    yield markdown_table(["", *(f"{count} repeats" for count in counts)], rows)
    yield "## Slow-downs that are found\n"
    least, most = _beyond_the_test(between)
    yield _POWER.format(fewest=FEWEST, least=least, most=most)
    slowdowns = sorted({row["slowdown"] for row in between} - {1})
    yield _power(between, before["between"], {f"{one - 1:+.0%}": one for one in slowdowns})
    yield "## Treatments of one run on a host that drifts\n"
    equal = [_different(row) for row in _of(now["within"], 1)]
    yield _WITHIN.format(slowdown=f"{_DRIFTING - 1:.0%}", least=min(equal), most=max(equal))
    yield _drifts(now["within"], before["within"])


_DRIFTING = 1.05


def _read(results: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    now, before = (json.loads((results / name).read_text()) for name in (NOW, BEFORE))
    return now, before


def _of(rows: Sequence[Row], slowdown: float | None) -> list[Row]:
    return [row for row in rows if row.get("slowdown") == slowdown]


def _trusted(rows: Sequence[Row], slowdown: float) -> list[Row]:
    return [row for row in _of(rows, slowdown) if row["repeats"] >= FEWEST]


def _different(row: Row) -> float:
    return 100 * float(row["higher"] + row["lower"]) / float(row["pairs"])


def _higher(row: Row) -> float:
    return 100 * float(row["higher"]) / float(row["pairs"])


def _test_higher(row: Row) -> float:
    return 100 * float(row["test_higher"]) / float(row["pairs"])


def _gate_failed(row: Row) -> float:
    return 100 * float(row["gate_failed"]) / float(row["pairs"])


def _covering(row: Row) -> float:
    return 100 * float(row["covering"]) / float(row["intervals"])


def _ratios_covering(row: Row) -> float:
    return 200 * float(row["ratios_covering"]) / float(row["intervals"])


def _beyond_the_test(rows: Sequence[Row]) -> tuple[float, float]:
    """Return by how many points the present rule finds more than the test, at least and at most."""
    trusted = [row for row in rows if row["slowdown"] > 1 and row["repeats"] >= FEWEST]
    found = [_higher(row) - _test_higher(row) for row in trusted]
    return min(found), max(found)


def _range(rows: Sequence[Row], share: Share, repeats: int) -> str:
    found = [share(row) for row in rows if row["repeats"] == repeats]
    return f"{min(found):.1f} to {max(found):.1f}"


def _power(now: Sequence[Row], before: Sequence[Row], slowdowns: Mapping[str, float]) -> str:
    counts = sorted({row["repeats"] for row in now})
    rows = [
        [title, *(_shares(_of(now, one), _of(before, one), {"repeats": count}) for count in counts)]
        for title, one in slowdowns.items()
    ]
    return markdown_table(["slower by", *(f"{count} repeats" for count in counts)], rows)


def _drifts(now: Sequence[Row], before: Sequence[Row]) -> str:
    sides = _of(now, _DRIFTING), _of(before, _DRIFTING)
    counts = sorted({row["repeats"] for row in now})
    rows = [
        [name, *(_shares(*sides, {"noise": name, "repeats": count}) for count in counts)]
        for name in dict.fromkeys(row["noise"] for row in now)
    ]
    return markdown_table(["the host drifts by", *(f"{count} repeats" for count in counts)], rows)


def _shares(now: Sequence[Row], before: Sequence[Row], wanted: Mapping[str, Any]) -> str:
    """Return the median shares before and now, and that of the test, of the rows with a value."""
    present, earlier = (
        [row for row in rows if all(row[key] == value for key, value in wanted.items())]
        for rows in (now, before)
    )
    figures = [median(map(_higher, earlier)), median(map(_higher, present))]
    return f"{figures[0]:.1f} → {figures[1]:.1f} ({median(map(_test_higher, present)):.1f})"
