"""The kills of runs, in the guest and on this machine, as sections of docs/TRUST.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.report.model import markdown_table
from reliability.campaign import read_results

_GUESTS = {"kept": "kept running by `pagecage host up vm`", "own": "started by the run"}
_HEAD = ["killed", "kills", "before a result", "after one"]


def kills_section(results: Path) -> Iterator[str]:
    if not (stored := read_results(results / "guest-kills.json")):
        return
    runs = stored["runs"]
    kills = [len(run["kills"]) for run in runs]
    yield "## Kills on the real guest\n"
    yield (
        f"{sum(kills)} SIGKILLs at random moments of {len(runs)} runs in the emulated guest, up to"
        f" {max(kills)} for a run. A killed controller is started again by `--resume`; after the"
        " end of its agent or of QEMU a run goes on by itself. The last start was left alone. It"
        " had to finish with every result, none lost,"
        " doubled or changed. It may leave no process, cgroup, mount, socket, lock, unit, setting"
        " or file beyond those of an unharmed run. A guest that is kept running is searched for"
        f" them too. **{_counted(runs)} had a consequence that must not be.** The seed"
        f" {stored['seed']} and the number of a run choose its kills"
        " (`python -m reliability.guest_kills`,"
        " [trust/guest-kills.json](trust/guest-kills.json)). The guests of a fleet are killed by"
        " `tests/vm/test_fleet.py` in `make test-long`.\n"
    )
    by_guest = [
        [title, *row]
        for guest, title in _GUESTS.items()
        for row in _rows([run for run in runs if run["guest"] == guest])
    ]
    yield markdown_table(["guest", *_HEAD], by_guest)
    yield from _still_wrong(runs)


def local_kills_section(results: Path) -> Iterator[str]:
    if not (stored := read_results(results / "local-kills.json")):
        return
    runs = stored["runs"]
    states = ", ".join(dict.fromkeys(run["code"] for run in runs))
    yield "## Kills on a real CPU\n"
    yield (
        f"{sum(len(run['kills']) for run in runs):,} SIGKILLs at random moments of {len(runs)} runs"
        " of short trials on a"
        " machine without systemd, whose limits cgroup files hold. A killed controller is started"
        " again by `--resume`. The last start was left alone. It had to finish with every result"
        " that was reported, none lost, doubled or changed. It may leave no process, cgroup, mount,"
        " setting of the disk or file beyond those of an unharmed run."
        f" **{_counted(runs)} had a consequence that must not be.**"
        f" {sum(run['missed'] for run in runs)} more kills found their target no longer there."
        f" The seed {stored['seed']} and the number of a run choose its kills"
        " (`python -m reliability.local_kills`,"
        f" [trust/local-kills.json](trust/local-kills.json)). State of the code: {states}.\n"
    )
    yield markdown_table(_HEAD, list(_rows(runs)))
    yield from _still_wrong(runs)


def _counted(runs: Sequence[Mapping[str, Any]]) -> str:
    return f"{sum(bool(run['wrong']) for run in runs)} of {len(runs)} runs"


def _rows(runs: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    kills = [kill for run in runs for kill in run["kills"]]
    for target in sorted({kill["target"] for kill in kills}):
        found = [kill["finished"] for kill in kills if kill["target"] == target]
        yield [target, *map(str, (len(found), found.count(0), len(found) - found.count(0)))]


def _still_wrong(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for run in runs:
        yield from (f"- **still wrong**, run {run['number']}: {one}\n" for one in run["wrong"])
