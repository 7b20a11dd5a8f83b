"""The compared runs: their letters, and their loading with included trials."""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path

from analysis.data.baseline import load_baseline
from analysis.data.include import VERDICTS, excluded_ids_named
from analysis.data.load import Run, excluded_trials, load_run, with_included
from pagecage.errors import PagecageError

LETTERS = string.ascii_uppercase


def run_letter(index: int) -> str:
    """Return A, B, C for the first, second and third run; AA follows Z."""
    before, index = divmod(index, len(LETTERS))
    return (run_letter(before - 1) if before else "") + LETTERS[index]


def load_runs(paths: Sequence[Path], include: Sequence[str] = ()) -> list[Run]:
    """Load runs, or baselines, in the given order, with the excluded trials that `include` names.

    A name is a trial or a verdict: `r1_x` or `host_quiet` in every run, `B:r1_x` in one. Raises
    PagecageError if a run is given twice, or if the name of a trial selects none that is excluded.
    """
    if len(paths) > len(LETTERS):
        raise PagecageError(
            f"{len(paths)} runs are too many for one table", f"compare {len(LETTERS)} at most"
        )
    if len({path.resolve() for path in paths}) < len(paths):
        raise PagecageError("a run cannot be compared with itself", "name another run")
    runs = [run_or_baseline(path) for path in paths]
    selections = [_selection(name, runs) for name in include]
    names_by_run = [
        [name for name, indices in selections if index in indices] for index in range(len(runs))
    ]
    return [
        with_included(run, excluded_ids_named(run, names))
        for run, names in zip(runs, names_by_run, strict=True)
    ]


def run_or_baseline(path: Path) -> Run:
    """Load a run's folder, or a baseline file."""
    return load_baseline(path) if path.is_file() else load_run(path)


def _selection(name: str, runs: Sequence[Run]) -> tuple[str, set[int]]:
    """Return a trial or verdict, and the indices of the runs in which it selects trials.

    A verdict may select none: a build names it whether the host was quiet or not.
    """
    letter, _, selector = name.rpartition(":")
    candidates = [index for index in range(len(runs)) if letter in ("", run_letter(index))]
    if selector in VERDICTS and candidates:
        return selector, set(candidates)
    indices = {index for index in candidates if excluded_ids_named(runs[index], [selector])}
    if not indices:
        excluded = {
            run_letter(index): [t.record.trial_id for t in excluded_trials(runs[index])]
            for index in candidates
        }
        names = "; ".join(f"{run}: {', '.join(ids)}" for run, ids in excluded.items() if ids)
        raise PagecageError(
            f"--include: {name} is not an excluded trial", f"excluded are {names or 'none'}"
        )
    return selector, indices
