"""`pagecage bundle` and `pagecage render`: a run as one archive, and its report elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pagecage.checkout import RUNS
from pagecage.cli.analyse import render as render_report
from pagecage.cli.output import notify
from pagecage.cli.paths import ExistingFile, Folder, NewFile
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.whole_files import scratch_folder, sync_folder, sync_tree


def bundle(
    name: str,
    *,
    out: NewFile | None = None,
    redact: Annotated[bool, Parameter(negative="--no-redact")] = True,
) -> int:
    """Pack a run into one archive.

    The archive holds plan, facts, records, traces, notebook and metadata.

    Parameters
    ----------
    name
        Run to pack: id, path, or an experiment's name for its newest run
    out
        Archive to write; by default named after the run
    redact
        Replace names of hosts and users, addresses, serial numbers and machine ids; --no-redact
        keeps them
    """
    from pagecage.bundle.layout import SUFFIX
    from pagecage.bundle.pack import pack
    from pagecage.runner.run_folder import find_run

    folder = find_run(RUNS, name).path
    target = out or Path(f"{folder.name}{SUFFIX}")
    if target.exists():
        raise PagecageError(f"{target} already exists", f"rm {target}, or give another --out")
    if _is_stale(folder):
        render_report(folder, notify)
    manifest = pack(folder, target, redacted=redact)
    for entry in manifest["redactions"]:
        notify(f"redacted {entry['kind']}: {entry['values']} different, {entry['places']} replaced")
    for entry in manifest["left_out"]:
        notify(f"left out {entry['path']}: {entry['why']}")
    if not redact:
        notify("nothing was redacted: the bundle names the host and the user")
    print(target)
    return EXIT_OK


def _is_stale(folder: Path) -> bool:
    """Return whether the notebook is missing or older than the records."""
    notebook, records = folder / "report.ipynb", folder / "records.jsonl"
    return records.exists() and (
        not notebook.exists() or notebook.stat().st_mtime < records.stat().st_mtime
    )


def render(archive: ExistingFile, *, out: Folder | None = None) -> int:
    """Unpack and check a bundle, and make its report again.

    Parameters
    ----------
    archive
        Archive made by `pagecage bundle`
    out
        Directory to create; by default named after the run
    """
    from pagecage.bundle.unpack import unpack

    if out and out.exists():
        raise PagecageError(f"{out} already exists", "give another --out")
    parent = (out or Path()).resolve()
    with scratch_folder(_nearest_existing(parent), "pagecage-render") as scratch:
        manifest = unpack(archive, scratch)
        target = out or Path(manifest["run_id"])
        if Path(manifest["run_id"]).name != manifest["run_id"]:
            raise PagecageError(
                f"the run id {manifest['run_id']!r} cannot name a directory", "give another --out"
            )
        if target.exists():
            raise PagecageError(f"{target} already exists", "give another --out")
        render_report(scratch, notify, runs_sections=False)
        target.parent.mkdir(parents=True, exist_ok=True)
        sync_tree(scratch)
        shutil.move(scratch, target)
        sync_folder(target.resolve().parent)
    print(target / "report.html")
    return EXIT_OK


def _nearest_existing(folder: Path) -> Path:
    """Return the folder or its nearest existing parent.

    A directory made there is on the same file system, so that it can be renamed into place.
    """
    while not folder.is_dir():
        folder = folder.parent
    return folder
