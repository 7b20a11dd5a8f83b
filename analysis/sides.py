"""Runs to be held side by side: read, told apart, and with those excluded trials that were let in by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.compare import LETTERS, letter
from analysis.load import Run, excluded_ids, load_run, with_let_in
from pagecage.errors import PagecageError


def load_sides(paths: Sequence[Path], include: Sequence[str] = ()) -> list[Run]:
    """The runs in the order given. `include` names excluded trials, `r1_x` in every run or `B:r1_x` in one.

    Raises PagecageError for the same run twice, and for a name that excludes nothing.
    """
    if len(paths) > len(LETTERS):
        raise PagecageError(f"{len(paths)} runs are too many for one table", f"compare {len(LETTERS)} at most")
    if len({path.resolve() for path in paths}) < len(paths):
        raise PagecageError("a run compared with itself says nothing", "name another run")
    runs = [load_run(path) for path in paths]
    wanted = [_wanted(name, runs) for name in include]
    return [with_let_in(run, {trial for trial, places in wanted if place in places}) for place, run in enumerate(runs)]


def _wanted(name: str, runs: Sequence[Run]) -> tuple[str, set[int]]:
    """The trial that a name means, and the places of the runs in which it is excluded."""
    side, _, trial = name.rpartition(":")
    asked = [place for place in range(len(runs)) if side in ("", letter(place))]
    excluded = {letter(place): excluded_ids(runs[place]) for place in asked}
    places = {place for place in asked if trial in excluded[letter(place)]}
    if not places:
        known = "; ".join(f"{run}: {', '.join(ids)}" for run, ids in excluded.items() if ids)
        raise PagecageError(f"--include: {name} is no excluded trial", f"excluded are {known or 'none'}")
    return trial, places
