"""`pagecage bundle` and `pagecage render`: a run given away, and its report made again elsewhere."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pagecage.checkout import RUNS
from pagecage.cli.analyse import render as render_report
from pagecage.cli.paths import FileThere, Folder, NewFile
from pagecage.errors import EXIT_OK, PagecageError


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def bundle(
    name: str,
    *,
    out: NewFile | None = None,
    redact: Annotated[bool, Parameter(negative="--no-redact")] = True,
) -> int:
    """Pack a run into one archive: plan, facts, records, traces, notebook and metadata.

    Parameters
    ----------
    name
        A run's id or path, or an experiment's name for its newest run.
    out
        The archive to write; named after the run unless given.
    redact
        Replace names of hosts and users, addresses, serial numbers and machine ids; --no-redact keeps them.
    """
    from pagecage.bundle.layout import SUFFIX
    from pagecage.bundle.pack import pack
    from pagecage.runner.run_folder import find_run

    folder = find_run(RUNS, name).path
    target = out or Path(f"{folder.name}{SUFFIX}")
    if target.exists():
        raise PagecageError(f"{target} is there already", f"rm {target}, or name another --out")
    if _is_stale(folder):
        render_report(folder, _say)
    manifest = pack(folder, target, redacted=redact)
    for one in manifest["redactions"]:
        _say(f"replaced {one['values']} of kind {one['kind']}, in {one['places']} places")
    for one in manifest["left_out"]:
        _say(f"left out {one['path']}: {one['why']}")
    if not redact:
        _say("nothing was taken out: it tells where and by whom it was made")
    print(target)
    return EXIT_OK


def _is_stale(folder: Path) -> bool:
    """Whether the notebook is missing, or older than the records."""
    notebook, records = folder / "report.ipynb", folder / "records.jsonl"
    return records.exists() and (not notebook.exists() or notebook.stat().st_mtime < records.stat().st_mtime)


def render(archive: FileThere, *, out: Folder | None = None) -> int:
    """Unpack a bundle that somebody made, check it, and make its report again.

    Parameters
    ----------
    archive
        What `pagecage bundle` wrote.
    out
        The folder to make; named after the run unless given.
    """
    from pagecage.bundle.unpack import unpack

    if out and out.exists():
        raise PagecageError(f"{out} is there already", "name another --out")
    where = (out or Path()).resolve()
    with tempfile.TemporaryDirectory(prefix=".pagecage-render-", dir=_nearest(where)) as scratch:
        aside = Path(scratch) / "run"
        manifest = unpack(archive, aside)
        target = out or Path(manifest["run_id"])
        if Path(manifest["run_id"]).name != manifest["run_id"] or target.exists():
            raise PagecageError(f"{target} is there already, or is no name of a folder", "name another --out")
        render_report(aside, _say)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(aside, target)
    print(target / "report.html")
    return EXIT_OK


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there: the same file system, so that moving is at once."""
    while not folder.is_dir():
        folder = folder.parent
    return folder
