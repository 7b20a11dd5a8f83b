"""The kills on the real guest, as a section of docs/TRUST.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.report.model import markdown_table
from reliability.campaign import read_results

_GUESTS = {"kept": "kept running by `pagecage host up vm`", "own": "started by the run"}


def kills_section(results: Path) -> Iterator[str]:
    stored = read_results(results / "guest-kills.json")
    runs = stored["runs"]
    kills = [len(run["kills"]) for run in runs]
    wrong = [(run["number"], sentence) for run in runs for sentence in run["wrong"]]
    counted = f"{len({number for number, _ in wrong})} of {len(runs)} runs"
    yield "## Kills on the real guest\n"
    yield (
        f"{sum(kills)} SIGKILLs at random moments of {len(runs)} runs in the emulated guest, up to"
        f" {max(kills)} for a run. A killed controller is started again by `--resume`; after the"
        " end of its agent or of QEMU a run goes on by itself. The last start was left alone. It"
        " had to finish with every result, none lost,"
        " doubled or changed. It may leave no process, cgroup, mount, socket, lock, unit, setting"
        " or file beyond those of an unharmed run. A guest that is kept running is searched for"
        f" them too. **{counted} had a consequence that must not be.** The seed {stored['seed']}"
        " and the number of a run choose its kills (`python -m reliability.guest_kills`,"
        " [trust/guest-kills.json](trust/guest-kills.json)). The guests of a fleet are killed by"
        " `tests/vm/test_fleet.py` in `make test-long`.\n"
    )
    yield markdown_table(_HEAD, list(_rows(runs)))
    yield from (f"- **still wrong**, run {number}: {sentence}\n" for number, sentence in wrong)


_HEAD = ["guest", "killed", "kills", "before a result", "after one"]


def _rows(runs: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    kills = [(run["guest"], kill) for run in runs for kill in run["kills"]]
    for guest, target in sorted({(guest, kill["target"]) for guest, kill in kills}):
        found = [kill for where, kill in kills if (where, kill["target"]) == (guest, target)]
        early = sum(kill["finished"] == 0 for kill in found)
        yield [_GUESTS[guest], target, *map(str, (len(found), early, len(found) - early))]
