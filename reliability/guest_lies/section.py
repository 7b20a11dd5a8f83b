"""The lies on the real guest, as a section of docs/TRUST.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pagecage.report.model import markdown_table
from reliability.campaign import read_results
from reliability.guest_lies.lies import is_caught

_MOMENTS = {
    "": "",
    "trial": "before the trial",
    "collectors": "between proof and start",
    "go": "measured part",
}


def guest_lies_section(results: Path) -> Iterator[str]:
    rows = read_results(results / "guest-lies.json")["lies"]
    lies = [row for row in rows if row["moment"]]
    caught = sum(is_caught(row["expected"], row["found"]) for row in lies)
    yield "## Lies on the real guest\n"
    yield (
        f"The same in the emulated guest, with the real kernel, systemd and disk. {caught} of"
        f" {len(lies)} lies were caught by the verdict that was expected. Nothing was planted in"
        " the first trial. Each is judged by what was seen inside the guest: load on the machine"
        " around it, which is a verdict too, is left out"
        " (`python -m reliability.guest_lies.campaign`).\n"
    )
    yield (
        "**One lie is not always caught.** Processes that use both CPUs made a computing trial wait"
        " for 4 to 18 % of its time, in four trials. The scheduler gives the trial's slice as much"
        " as all other services together, and the rule allows waits of 15 %. So a time may be that"
        " much too long.\n"
    )
    yield markdown_table(
        ["lie", "planted", "expected", "verdict"],
        [[row["lie"], _MOMENTS[row["moment"]], row["expected"], row["found"]] for row in rows],
    )
