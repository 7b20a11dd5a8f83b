"""docs/TRUST.md: the reliability of pagecage in figures, made from stored results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.report.export import markdown_table
from tests.tree import ROOT
from tests.trust.costs.section import costs_section
from tests.trust.disks.section import disks_section
from tests.trust.faults.results import section as faults_section
from tests.trust.guest_lies.section import guest_lies_section
from tests.trust.mutants.section import mutants_section
from tests.trust.variation import section as variation_section
from tests.trust.witnesses.section import witnesses_section

RESULTS = ROOT / "docs/trust"
PAGE = ROOT / "docs/TRUST.md"
_HEAD = """# Reliability

How often is pagecage wrong? This page answers in figures. `make trust` measures them again and
writes this page; the results that it shows are in [docs/trust](trust). Nothing here was written by
hand but the sentences between the tables.
"""


def page(results: Path = RESULTS) -> str:
    """Return the page from the stored results, each section from a file of its own."""
    return "\n".join([_HEAD, *(line for section in SECTIONS for line in section(results))])


def _statistics(results: Path) -> Iterator[str]:
    statistics = json.loads((results / "statistics.json").read_text())
    yield from _alarms(statistics)
    yield from _power(statistics)
    yield from _coverage(statistics)


def _alarms(statistics: Mapping[str, Any]) -> Iterator[str]:
    rows = [row for row in statistics["comparisons"] if row["slowdown"] == 1]
    pairs = sum(row["pairs"] for row in rows)
    gates = sum(row["gate_failed"] for row in rows)
    different = sum(row["higher"] + row["lower"] for row in rows)
    yield "## False alarms\n"
    yield (
        f"{pairs:,} pairs of samples were drawn from equal distributions and compared as `pagecage"
        f" compare` does. {different} were called different ({_percent(different, pairs)}). A gate"
        f" `> +5%` failed for {gates} ({_percent(gates, pairs)}).\n"
    )
    yield _by_shape(rows, lambda row: _percent(row["higher"] + row["lower"], row["pairs"]))
    yield "The share for which a gate `> +5%` failed:\n"
    yield _by_shape(rows, lambda row: _percent(row["gate_failed"], row["pairs"]))


def _power(statistics: Mapping[str, Any]) -> Iterator[str]:
    yield "## Slow-downs that are found\n"
    yield (
        "The second sample was made slower. The share of the pairs that is called higher, by the"
        " number of repeats:\n"
    )
    slowdowns = sorted({row["slowdown"] for row in statistics["comparisons"]} - {1})
    for slowdown in slowdowns:
        rows = [row for row in statistics["comparisons"] if row["slowdown"] == slowdown]
        yield f"**{slowdown - 1:+.0%}**\n"
        yield _by_shape(rows, lambda row: _percent(row["higher"], row["pairs"]))


def _coverage(statistics: Mapping[str, Any]) -> Iterator[str]:
    rows = statistics["coverage"]
    yield "## What an interval contains\n"
    yield (
        "An interval that is called `95 %` should contain the median of the distribution in at"
        " least 95 of 100 cases. One of fewer than six values is called `range` and promises"
        " nothing; this is how often it contains the median.\n"
    )
    yield _by_shape(rows, lambda row: _percent(row["covering"], row["intervals"]))
    yield "The same for the ratio of two samples, which should contain 1:\n"
    yield _by_shape(rows, lambda row: _percent(row["ratios_covering"], row["intervals"] // 2))


def _by_shape(rows: Sequence[Mapping[str, Any]], cell: Any) -> str:
    """Return a table with the shapes down and the numbers of repeats across."""
    repeats = sorted({row["repeats"] for row in rows})
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    cells = {(row["shape"], row["repeats"]): cell(row) for row in rows}
    head = ["noise", *(f"{count} repeats" for count in repeats)]
    return markdown_table(
        head, [[shape, *(cells[shape, count] for count in repeats)] for shape in shapes]
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


SECTIONS: tuple[Callable[[Path], Iterator[str]], ...] = (
    _statistics,
    variation_section,
    faults_section,
    mutants_section,
    guest_lies_section,
    witnesses_section,
    disks_section,
    costs_section,
)


if __name__ == "__main__":
    PAGE.write_text(page())
