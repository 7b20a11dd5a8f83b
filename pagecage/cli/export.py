"""`pagecage export`, `import` and `publish`: runs as archives, and as a site."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from pagecage.checkout import OWN, RUNS
from pagecage.cli.articles import StoredRuns
from pagecage.cli.runs import opened_run
from pagecage.cli.show import analysing, report
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.model.json_codec import JsonView
from pagecage.planning.options import ExistingFile, ExistingFolder, Folder, NewFile
from pagecage.runner.run_folder import find_run
from pagecage.terminal import notify
from pagecage.whole_files import scratch_folder, sync_folder, sync_tree

Kind = Literal[
    "addresses", "arguments", "hosts", "ids", "kernel", "urls", "users", "variables", "words"
]
"""Kinds of values that a bundle replaces (pagecage/bundle/redact.py)."""


def export(
    name: str,
    /,
    *,
    out: NewFile | None = None,
    redact: Annotated[bool, Parameter(negative="--no-redact")] = True,
    keep: Annotated[tuple[Kind, ...], Parameter(negative=(), metavar="KIND")] = (),
    leave_out: Annotated[tuple[str, ...], Parameter(negative=(), metavar="FILE")] = (),
) -> int:
    """Pack a run into one archive.

    The archive holds plan, facts, records, traces and metadata. `pagecage show` reads it, and
    `pagecage import` makes the report from it.

    Parameters
    ----------
    name
        Run to pack: id, path, an experiment's name for its newest run, or a bundle, to redact it
        again
    out
        Archive to write; by default named after the run
    redact
        Replace all words that may name something of a machine or its user; --no-redact keeps them
    keep
        Kind of value that is not replaced: addresses, arguments, hosts, ids, kernel, urls, users,
        variables or words. May be given several times
    leave_out
        Trace that the archive does not contain, such as fio_lat.log or 'fio_*.log'. May be given
        several times
    """
    from pagecage.bundle.pack import SUFFIX, pack

    with opened_run(name) as (folder, run_id):
        target = out or Path(f"{run_id}{SUFFIX}")
        if target.exists():
            raise PagecageError(f"{target} already exists", f"rm {target}, or give another --out")
        manifest = pack(folder.path, target, redacted=redact, keep=keep, leave_out=leave_out)
    _tell(manifest)
    print(target)
    return EXIT_OK


def _tell(manifest: JsonView) -> None:
    from pagecage.bundle.redact import KINDS

    for entry in manifest["redactions"]:
        values, places = entry["values"], entry["places"]
        about = f"{entry['kind']} ({KINDS[entry['kind']]})"
        notify(f"replaced {about}: {values} different, in {places} places")
    for kind, places in manifest["kept"].items():
        notify(f"kept {kind}: in {places} places")
    left_out = Counter((Path(one["path"]).name, one["why"]) for one in manifest["left_out"])
    for (file, why), count in left_out.items():
        notify(f"left out {file}{f' of {count} trials' if count > 1 else ''}: {why}")
    if not manifest["is_redacted"]:
        notify("nothing was redacted: the bundle names the host and the user")
    elif any(entry["kind"] == "words" for entry in manifest["redactions"]):
        notify("numbers and pagecage's own words stay; --keep KIND leaves a kind as it is")


def import_(archive: ExistingFile, /, *, out: Folder | None = None) -> int:
    """Unpack and check an archive, and make its report again.

    Parameters
    ----------
    archive
        Archive made by `pagecage export`
    out
        Directory to create; by default named after the run
    """
    from pagecage.bundle.unpack import unpack

    if archive.suffix != ".zip":
        raise PagecageError(
            f"{archive} is not an archive of a run", f"pagecage cage import {archive} reads limits"
        )
    if out and out.exists():
        raise PagecageError(f"{out} already exists", "give another --out")
    existing = (out or Path()).resolve()
    while not existing.is_dir():  # on the same file system, so that it can be renamed into place
        existing = existing.parent
    with scratch_folder(existing, "pagecage-import") as scratch:
        manifest = unpack(archive, scratch)
        target = out or Path(manifest["run_id"])
        if Path(manifest["run_id"]).name != manifest["run_id"]:
            raise PagecageError(
                f"the run id {manifest['run_id']!r} cannot name a directory", "give another --out"
            )
        if target.exists():
            raise PagecageError(f"{target} already exists", "give another --out")
        report(scratch, shows_tables=False, runs_sections=False)
        target.parent.mkdir(parents=True, exist_ok=True)
        sync_tree(scratch)
        shutil.move(scratch, target)
        sync_folder(target.resolve().parent)
    print(target / "report.html")
    return EXIT_OK


def publish(*runs: str, out: Folder = OWN / "site", bundles: ExistingFolder | None = None) -> int:
    """Make a static site of reports, claims and documents.

    The site can be opened offline.

    Parameters
    ----------
    runs
        Runs to publish: ids, paths or experiments' names; without any, the newest run of each
        experiment
    out
        Directory of the site; replaced once the new site is complete
    bundles
        Directory of bundles to read instead of the project's runs, such as docs/runs
    """
    named = [find_run(RUNS, name).path.resolve() for name in runs]
    folders, site = StoredRuns(bundles=bundles).folders(), out.resolve()
    notify("making the site ...")
    with analysing("site"):
        from analysis import results

        results.publish(*folders, named, site)
    print(os.path.relpath(out / "index.html"))
    return EXIT_OK
