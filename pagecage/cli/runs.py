"""`pagecage runs`: stored runs, their room on the disk, and their removal."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cyclopts import App

from pagecage.bundle.pack import SUFFIX
from pagecage.bundle.unpack import unpacked
from pagecage.checkout import RUNS
from pagecage.cli.cage_page import console, print_rows
from pagecage.cli.output import Json, examples, shown
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.fleet.folder import find_fleet
from pagecage.planning.options import ExistingFolder
from pagecage.runner.run_folder import RunFolder, find_run, path_exists, point_latest
from pagecage.terminal import confirmed, notify
from pagecage.units import format_bytes

app = App(
    name="runs",
    help="List stored runs with the room that they take, and remove them.",
    help_epilogue=examples("runs"),
)


BUNDLED = "bundle"
"""The name of the temporary folder to which a bundle is unpacked."""


@contextmanager
def opened_run(name: str) -> Iterator[tuple[RunFolder, str]]:
    """Yield a run and its id: of the project, in a folder anywhere, or in a bundle."""
    if not path_exists(Path(name)) or not Path(name).is_file():
        found = find_run(RUNS, name)
        yield found, found.path.name
        return
    with unpacked(Path(name), BUNDLED) as (folder, manifest):
        yield RunFolder(folder), manifest["run_id"]


@contextmanager
def opened_folder(name: str) -> Iterator[Path]:
    """Yield the folder of a run, or of a run on several hosts."""
    if fleet := find_fleet(RUNS, name):
        yield fleet.path
        return
    with opened_run(name) as (run, _):
        yield run.path


@dataclass(frozen=True)
class StoredRun:
    """A folder of runs/. `done` and `planned` count trials; None if unknown."""

    run_id: str
    path: str
    done: int | None
    planned: int | None
    size_bytes: int


def stored_runs(runs: Path) -> list[StoredRun]:
    """Return the runs of a folder, the newest first, and its bundles."""
    folders = [
        path
        for path in sorted(runs.iterdir() if runs.is_dir() else (), reverse=True)
        if path.is_dir() and not path.is_symlink() and not path.name.startswith(".")
    ]
    found = [
        StoredRun(path.name, str(path), *_trials(path), _size_bytes(path))
        for path in folders
        if path_exists(path / "plan.json") or path_exists(path / "hosts")
    ]
    bundles = sorted(runs.glob(f"*{SUFFIX}"), reverse=True)
    return found + [
        StoredRun(path.name.removesuffix(SUFFIX), str(path), None, None, path.stat().st_size)
        for path in bundles
    ]


def _trials(path: Path) -> tuple[int | None, int | None]:
    folder = RunFolder(path)
    with suppress(PagecageError):
        plan = folder.plan()
        final = sum(attempt.is_final for attempt in folder.last_attempts().values())
        return final, max(final, len(plan.trials))
    return None, None


def _size_bytes(path: Path) -> int:
    return sum(file.lstat().st_blocks * 512 for file in path.rglob("*"))


def holds_runs(name: str) -> bool:
    """Return whether a name is the path of a directory of runs or bundles, and not of a run."""
    folder = Path(name)
    if not path_exists(folder) or not folder.is_dir() or path_exists(folder / "plan.json"):
        return False
    return any(folder.glob(f"*{SUFFIX}")) or any(folder.glob("*/plan.json"))


@app.default
@app.command(name="list", help_epilogue=examples("runs list"))
def list_(folder: ExistingFolder = RUNS, /, *, largest: bool = False, as_json: Json = False) -> int:
    """List stored runs, the newest first, with their trials and the room that they take.

    Parameters
    ----------
    folder
        Directory of runs; by default the project's
    largest
        Sort by size
    """
    found = stored_runs(folder)
    if largest:
        found.sort(key=lambda run: run.size_bytes, reverse=True)
    if as_json:
        print(json.dumps([asdict(run) for run in found]))
        return EXIT_OK
    progress = ("" if run.planned is None else f"{run.done} of {run.planned}" for run in found)
    sizes = (format_bytes(run.size_bytes) for run in found)
    if found:
        rows = zip((run.run_id for run in found), progress, sizes, strict=True)
        print_rows(console(), ("run", "trials", "size"), rows)
    total = format_bytes(sum(run.size_bytes for run in found))
    notify(f"{len(found)} runs in {shown(folder)}, {total}")
    return EXIT_OK


@app.command(help_epilogue=examples("runs remove"))
def remove(*names: str, yes: bool = False, as_json: Json = False) -> int:
    """Remove stored runs for good, with their records, traces and reports.

    Parameters
    ----------
    names
        Runs to remove: ids, paths, or an experiment's name for its newest run
    yes
        Do not ask
    """
    if not names:
        raise PagecageError("no run was named", "pagecage runs list")
    folders = list(dict.fromkeys(map(_stored_folder, names)))
    size = format_bytes(sum(map(_size_bytes, folders)))
    ids = ", ".join(folder.name for folder in folders)
    if not yes and not sys.stdin.isatty():
        raise PagecageError(f"{ids} would be removed, {size}", "add --yes")
    if not yes and not confirmed(f"Remove {ids}, {size}?"):
        raise PagecageError(f"not confirmed: {ids} stays", "add --yes")
    with ExitStack() as locks:
        for folder in folders:  # a run that another process writes to is refused before any goes
            locks.enter_context(RunFolder(folder).locked())
        for folder in folders:
            shutil.rmtree(folder)
            _repair_links(folder)
    if as_json:
        print(json.dumps([str(folder) for folder in folders]))
    else:
        notify(f"removed: {ids} ({size})")
    return EXIT_OK


def _stored_folder(name: str) -> Path:
    path = (find_fleet(RUNS, name) or find_run(RUNS, name)).path
    if path.parent != RUNS.resolve():
        raise PagecageError(f"{path} is not a run in {shown(RUNS)}", f"rm -r {path}")
    return path


def _repair_links(removed: Path) -> None:
    """Point each latest-NAME that named a removed run at the next newest run, if there is one."""
    links = [link for link in removed.parent.glob("latest-*") if link.is_symlink()]
    for link in (link for link in links if not path_exists(link)):
        link.unlink()
        name = link.name.removeprefix("latest-")
        others = sorted(removed.parent.glob(f"*Z-{name.partition('@')[0]}-*"), reverse=True)
        newest = next((path for path in others if _latest_name(path) == name), None)
        if newest:
            point_latest(removed.parent, name, newest.name)


def _latest_name(path: Path) -> str:
    """Return the name that a run is found by: its experiment's, or EXPERIMENT@GROUP."""
    try:
        if fleet := find_fleet(path.parent, path.name):
            document = fleet.document()
            return f"{document['experiment']}@{document['group']}"
        return str(RunFolder(path).plan().document["experiment"])
    except PagecageError:
        return ""
