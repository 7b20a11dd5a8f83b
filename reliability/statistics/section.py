"""The sections of docs/TRUST.md about statistics: the rules before and now, side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.stats import FEWEST
from pagecage.report.model import markdown_table

NOW, BEFORE = "statistics.json", "statistics-before.json"
Row = Mapping[str, Any]
Cell = Callable[[Row], str]
_INTRODUCTION = """Pairs of samples were drawn from equal distributions and compared as `pagecage
compare` does with two runs. From {fewest} repeats on, {least} to {most} of 100 pairs are called
different, whatever the noise; a gate `> +5%` fails for {gates} at most. With three, the ranges must
be apart, and by more than the trials of a side are.

Each cell has the share by the rule of commit `{commit}`, then by the present one. `python -m
reliability.statistics` measures the present rule, with `--before COMMIT` that of a commit.
"""
_POWER = """The second sample was made slower. Each cell has the share of the pairs that is called
higher by the earlier rule, by the present one, and in brackets by the test of Mann and Whitney
(two-sided, 5 %, exact, by scipy).
"""
_WITHIN = """Two treatments of one run are compared by the differences within its blocks. Here a
block has a trial of each, in random order, and the noise is 2 %. The host drifts in one of these
ways:

- by 1 % at each trial;
- between two states that are a fifth apart, in which it is started for each block (`fresh =
  "block"`);
- between two such states at one trial of ten, also within a block.

Each cell has the share that is called different, or higher where the second treatment is slower: by
the earlier rule, by the present one, and in brackets by a test of Mann and Whitney, which does not
know the blocks. Where nothing drifts, pairs find less than it does with few blocks. So few trials
do not tell a host that drifts from one that does not.
"""
_COVERAGE = """An interval that is called `95 %` should contain the median of the distribution in at
least 95 of 100 cases. One of fewer than six values is called `range` and promises nothing; this is
how often it contains the median.
"""
_RATIOS = """The same for the ratio of two samples, which should contain 1, by the earlier rule and
by the present one. From {fewest} values on, the interval states its confidence, 94 to 96 %.
"""


def statistics_sections(results: Path) -> Iterator[str]:
    now, before = (json.loads((results / name).read_text()) for name in (NOW, BEFORE))
    yield from _alarms(now["between"], before)
    yield "## Slow-downs that are found\n"
    yield _POWER
    for slowdown in _slowdowns(now["between"]):
        yield f"**{slowdown - 1:+.0%}**\n"
        yield _side_by_side(now["between"], before["between"], _with_test(_higher), slowdown)
    yield "## Treatments of one run on a host that drifts\n"
    yield _WITHIN
    for slowdown in (1.0, *_slowdowns(now["within"])):
        yield f"**{'equal' if slowdown == 1 else f'{slowdown - 1:+.0%}'}**\n"
        share = _different if slowdown == 1 else _higher
        yield _side_by_side(now["within"], before["within"], _with_test(share), slowdown)
    yield "## What an interval contains\n"
    yield _COVERAGE
    yield _table(now["coverage"], lambda row: f"{_percent(row['covering'], row['intervals'])} %")
    yield _RATIOS.format(fewest=FEWEST)
    yield _side_by_side(now["coverage"], before["coverage"], _then(_ratios_covering), None)


def _alarms(now: Sequence[Row], before: Mapping[str, Any]) -> Iterator[str]:
    equal = [row for row in now if row["slowdown"] == 1]
    trusted = [row for row in equal if row["repeats"] >= FEWEST]
    shares = [100 * (row["higher"] + row["lower"]) / row["pairs"] for row in trusted]
    gates = max(row["gate_failed"] / row["pairs"] for row in trusted)
    yield "## False alarms\n"
    yield _INTRODUCTION.format(
        fewest=FEWEST,
        least=f"{min(shares):.1f}",
        most=f"{max(shares):.1f}",
        gates=f"{100 * gates:.1f} of 100",
        commit=before["commit"],
    )
    yield _side_by_side(now, before["between"], _then(_different), 1)
    yield "The share for which a gate `> +5%` failed:\n"
    yield _side_by_side(now, before["between"], _then(_gate_failed), 1)


def _different(row: Row) -> str:
    return _percent(row["higher"] + row["lower"], row["pairs"])


def _higher(row: Row) -> str:
    return _percent(row["higher"], row["pairs"])


def _gate_failed(row: Row) -> str:
    return _percent(row["gate_failed"], row["pairs"])


def _ratios_covering(row: Row) -> str:
    return _percent(row["ratios_covering"], row["intervals"] // 2)


Pair = Callable[[Row, Row], str]


def _then(share: Cell) -> Pair:
    return lambda now, before: f"{share(before)} → {share(now)} %"


def _with_test(share: Cell) -> Pair:
    def cell(now: Row, before: Row) -> str:
        test = {**now, "higher": now["test_higher"], "lower": now["test_lower"]}
        return f"{share(before)} → {share(now)} % ({share(test)})"

    return cell


def _side_by_side(
    now: Sequence[Row], before: Sequence[Row], pair: Pair, slowdown: float | None
) -> str:
    earlier = {(row["noise"], row["repeats"]): row for row in _of(before, slowdown)}
    return _table(_of(now, slowdown), lambda row: pair(row, earlier[row["noise"], row["repeats"]]))


def _of(rows: Sequence[Row], slowdown: float | None) -> list[Row]:
    return [row for row in rows if row.get("slowdown") == slowdown]


def _table(rows: Sequence[Row], cell: Cell) -> str:
    repeats = sorted({row["repeats"] for row in rows})
    kinds = list(dict.fromkeys(row["noise"] for row in rows))
    cells = {(row["noise"], row["repeats"]): cell(row) for row in rows}
    head = ["noise", *(f"{count} repeats" for count in repeats)]
    return markdown_table(head, [[kind, *(cells[kind, n] for n in repeats)] for kind in kinds])


def _slowdowns(rows: Sequence[Row]) -> list[float]:
    return sorted({row["slowdown"] for row in rows} - {1})


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}"
