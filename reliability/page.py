"""docs/TRUST.md: the reliability of pagecage in figures, made from stored results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from reliability.campaign import RESULTS, write_page
from reliability.costs.section import costs_section
from reliability.disks.section import disks_section
from reliability.faults.results import section as faults_section
from reliability.guest_kills.section import local_kills_section
from reliability.guest_lies.campaign import guest_lies_section
from reliability.mutants.section import mutants_section
from reliability.power_loss.section import power_loss_section
from reliability.statistics.section import statistics_sections
from reliability.variation import section as variation_section
from reliability.witnesses.section import witnesses_section

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
    write_page(RESULTS)
