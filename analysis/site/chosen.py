"""Which runs a site shows: those that were named, or the newest that counts of every experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from analysis.load import Run, load_run
from pagecage.errors import PagecageError


def chosen(newest: Mapping[str, Run], named: Sequence[Path]) -> dict[str, Run]:
    """Runs by experiment, in the order of their names; those at smoke size, which show little, come last.

    Raises PagecageError when there is none, when a folder is no run, or when two are of one experiment: a site has
    one page for each.
    """
    found = _named(named) if named else newest
    if not found:
        raise PagecageError("there is no run to publish", "make experiment NAME=constrained-random")
    return dict(sorted(found.items(), key=lambda item: (item[1].plan["size"] == "smoke", item[0])))


def _named(folders: Sequence[Path]) -> dict[str, Run]:
    found: dict[str, Run] = {}
    for run in map(load_run, folders):
        name = run.plan["experiment"]
        if name in found:
            raise PagecageError(
                f"{found[name].plan['run_id']} and {run.plan['run_id']} are both runs of {name}, which has one page",
                "name one of them",
            )
        found[name] = run
    return found
