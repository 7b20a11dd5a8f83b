"""docs/TRUST.md: the reliability of pagecage in figures, made from stored results.

`python -m reliability.page` writes the page, and names the results whose code has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from reliability.campaign import RESULTS, is_outdated, read_results, tell, told_states, write_page
from reliability.costs import costs_section, costs_summary
from reliability.disks.section import disks_section
from reliability.faults.results import faults_section, injected
from reliability.guest_kills import killed, kills_section
from reliability.guest_lies.campaign import guest_lies_section
from reliability.mutants.campaign import mutants_section, mutants_summary
from reliability.power_loss import cut, power_loss_section
from reliability.statistics import statistics_sections, statistics_summary
from reliability.variation import variation_section
from reliability.witnesses import counts_summary, witnesses_section

Part = Callable[[Path], Iterator[str]]
_HEAD = """# Reliability

This page has the totals of the campaigns that measure the errors of pagecage. In short:
"""
_ROWS = """
The rows behind each total are in [docs/trust](trust), in the file that its section
names. `make trust` and `make trust-long` repeat the measurements and write this page. `python -m
reliability.page` names the results whose code has changed since. No figure on this page was typed
by hand.
"""
FILES = {
    "statistics.json": "reliability.statistics",
    "variation.json": "reliability.variation RUN...",
    "faults.json": "reliability.faults",
    "guest-kills.json": "reliability.guest_kills",
    "local-kills.json": "reliability.local_kills",
    "power_loss.json": "reliability.power_loss",
    "mutants.json": "reliability",
    "guest-lies.json": "reliability.guest_lies.campaign",
    "witnesses.json": "reliability.witnesses",
    "disks.json": "reliability.disks.campaign",
    "costs.json": "reliability.costs",
}
"""The files of results, with the module that measures each."""


def _wrong_summary(results: Path) -> Iterator[str]:
    """Yield the summary of faults, kills and power losses."""
    counts = {"faults": injected, "kills": killed, "power cuts": cut}
    found = {name: count(results) for name, count in counts.items()}
    listed = ", ".join(f"{done:,} {name}" for name, (done, _) in found.items() if done)
    wrong = sum(bad for _, bad in found.values())
    yield f"**Crashes**: after {listed}, {wrong} had a forbidden consequence."


SUMMARIES: tuple[Part, ...] = (
    statistics_summary,
    mutants_summary,
    _wrong_summary,
    counts_summary,
    costs_summary,
)
SECTIONS: tuple[Part, ...] = (
    statistics_sections,
    variation_section,
    faults_section,
    kills_section,
    power_loss_section,
    mutants_section,
    guest_lies_section,
    witnesses_section,
    disks_section,
    costs_section,
)


def page(results: Path = RESULTS) -> str:
    """Return the page from the stored results, each section from a file of its own."""
    summary = [f"- {line}" for part in SUMMARIES for line in part(results)]
    sections = (line for section in SECTIONS for line in section(results))
    return "\n".join([_HEAD, *summary, _ROWS, *sections, *_sources(results)])


def _sources(results: Path) -> Iterator[str]:
    """Yield the section that names the code of each file of results."""
    yield "## The code that was measured\n"
    for name, module in FILES.items():
        if (path := results / name).exists():
            states = read_results(path)["measured"]
            again = f"`python -m {module}`"
            yield f"- [{name}](trust/{name}), {again}: {told_states(states)}"
    yield ""


def main() -> None:
    """Write the page; name the results that were not measured with the present code."""
    write_page(RESULTS)
    for name in FILES:
        states = read_results(RESULTS / name)["measured"]
        if is_outdated(name, states):
            tell(f"docs/trust/{name}: the code has changed. {told_states(states)}")


if __name__ == "__main__":
    main()
