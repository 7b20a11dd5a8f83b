"""Runs to be held side by side: read, told apart, and with those excluded trials that were let in by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.compare import LETTERS, letter
from analysis.let_in import named
from analysis.load import Run, excluded_ids, load_run, with_let_in
from pagecage.errors import PagecageError


def load_sides(paths: Sequence[Path], include: Sequence[str] = ()) -> list[Run]:
    """The runs in the order given, with the excluded trials that `include` names averaged in.

    A name is a trial's or a verdict's: `r1_x` or `host_quiet` in every run, `B:r1_x` in one.
    Raises PagecageError for the same run twice, and for a name that excludes nothing.
    """
    if len(paths) > len(LETTERS):
        raise PagecageError(f"{len(paths)} runs are too many for one table", f"compare {len(LETTERS)} at most")
    if len({path.resolve() for path in paths}) < len(paths):
        raise PagecageError("a run compared with itself says nothing", "name another run")
    runs = [load_run(path) for path in paths]
    asked = [_asked(name, runs) for name in include]
    mine = [[name for name, places in asked if place in places] for place in range(len(runs))]
    return [with_let_in(run, named(run, names)) for run, names in zip(runs, mine, strict=True)]


def _asked(name: str, runs: Sequence[Run]) -> tuple[str, set[int]]:
    """The trial or the verdict that a name means, and the places of the runs in which it excludes something."""
    side, _, wanted = name.rpartition(":")
    asked = [place for place in range(len(runs)) if side in ("", letter(place))]
    places = {place for place in asked if named(runs[place], [wanted])}
    if not places:
        excluded = {letter(place): excluded_ids(runs[place]) for place in asked}
        known = "; ".join(f"{run}: {', '.join(ids)}" for run, ids in excluded.items() if ids)
        raise PagecageError(f"--include: {name} is no excluded trial", f"excluded are {known or 'none'}")
    return wanted, places
