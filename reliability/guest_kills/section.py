"""The kills of runs, in the guest and on this machine, as a section of docs/TRUST.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.report.model import markdown_table
from reliability.campaign import read_results

Run = Mapping[str, Any]
_PLACES = {
    "local-kills.json": "a real CPU, limits by cgroup files",
    "guest-kills.json": "the emulated guest",
}
_METHOD = """SIGKILLs at random moments, up to {most} in one run. A killed controller is started
again by `--resume`; after the end of its agent or of QEMU a run goes on by itself. The last start
is left alone. It must finish with every result that was reported, none lost, doubled or changed. It
may leave no process, cgroup, mount, socket, lock, unit, setting or file beyond those of an unharmed
run.
"""
_HEAD = ["where", "killed", "kills", "before the first result", "after it", "not met"]


def kills_section(results: Path) -> Iterator[str]:
    by_place = _by_place(results)
    if not by_place:
        return
    runs = [run for found in by_place.values() for run in found]
    yield "## Kills\n"
    yield _METHOD.format(most=max(len(run["kills"]) for run in runs))
    kills, wrong = killed(results)
    finished = [kill["finished"] for run in runs for kill in run["kills"]]
    yield (
        f"{kills:,} kills in {len(runs)} runs, {len(finished) - finished.count(0):,} of them after"
        f" the first result. **{wrong} of {len(runs)} runs had a consequence that must not be.** A"
        " kill that is not met found its target gone. A run that is started to be killed counts,"
        " whether a kill met it or not. `tests/vm/test_fleet.py` kills the guests of a fleet.\n"
    )
    rows = (row for place, found in by_place.items() for row in _rows(place, found))
    yield markdown_table(_HEAD, rows)
    stored = read_results(results / "guest-kills.json", {"tries": 0, "runs": []})
    if (dropped := stored.get("tries", 0) - len(stored["runs"])) > 0:
        yield (
            f"{dropped} of {stored['tries']} runs in the guest are not stored: no kill met them,"
            " and such runs did not count before.\n"
        )
    for run in runs:
        for one in run.get("wrong_before", ()):
            yield f"- run {run['number']} was repeated, because of this before: {one}\n"
        yield from (f"- **still wrong**, run {run['number']}: {one}\n" for one in run["wrong"])


def killed(results: Path) -> tuple[int, int]:
    """Return the number of kills, and of runs with a consequence that must not be."""
    runs = [run for found in _by_place(results).values() for run in found]
    return sum(len(run["kills"]) for run in runs), sum(bool(run["wrong"]) for run in runs)


def _by_place(results: Path) -> dict[str, list[Run]]:
    stored = {place: read_results(results / name) for name, place in _PLACES.items()}
    return {place: found["runs"] for place, found in stored.items() if found}


def _rows(place: str, runs: Sequence[Run]) -> Iterator[list[str]]:
    kills = [kill for run in runs for kill in run["kills"]]
    missed = sum(run.get("missed", 0) for run in runs)
    for target in sorted({kill["target"] for kill in kills}):
        found = [kill["finished"] for kill in kills if kill["target"] == target]
        counts = (len(found), found.count(0), len(found) - found.count(0))
        yield [place, target, *map(str, counts), ""]
    yield [place, "all", *(str(one) for one in _sums(kills)), str(missed)]


def _sums(kills: Sequence[Mapping[str, Any]]) -> tuple[int, int, int]:
    before = sum(not kill["finished"] for kill in kills)
    return len(kills), before, len(kills) - before
