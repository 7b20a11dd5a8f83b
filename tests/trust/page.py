"""docs/TRUST.md: the reliability of pagecage in figures, made from stored results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.tree import ROOT
from tests.trust.costs.section import costs_section
from tests.trust.disks.section import disks_section
from tests.trust.faults.results import section as faults_section
from tests.trust.guest_lies.section import guest_lies_section
from tests.trust.local_kills.section import local_kills_section
from tests.trust.mutants.section import mutants_section
from tests.trust.power_loss.section import power_loss_section
from tests.trust.statistics.section import statistics_sections
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


SECTIONS: tuple[Callable[[Path], Iterator[str]], ...] = (
    statistics_sections,
    variation_section,
    faults_section,
    local_kills_section,
    power_loss_section,
    mutants_section,
    guest_lies_section,
    witnesses_section,
    disks_section,
    costs_section,
)


if __name__ == "__main__":
    PAGE.write_text(page())
