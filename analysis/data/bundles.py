"""Runs in bundles, unpacked to a temporary folder while they are read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analysis.data.load import Run, load_run
from pagecage.bundle.layout import SUFFIX
from pagecage.bundle.unpack import unpack
from pagecage.errors import PagecageError


@contextmanager
def bundled_runs(folder: Path) -> Iterator[list[Run]]:
    """Load the run of every bundle in a folder, in the order of their file names.

    The runs' files exist within the context only. A folder without bundles gives no run. Raises
    PagecageError if the folder does not exist, and for an invalid bundle or run.
    """
    if not folder.is_dir():
        raise PagecageError(f"{folder} is not a folder", "pagecage bundle RUN --out FOLDER/FILE")
    with tempfile.TemporaryDirectory(prefix="pagecage-bundles-") as scratch:
        yield [
            _unpacked(bundle, Path(scratch) / bundle.name.removesuffix(SUFFIX))
            for bundle in sorted(folder.glob(f"*{SUFFIX}"))
        ]


def _unpacked(bundle: Path, target: Path) -> Run:
    unpack(bundle, target)
    try:
        return load_run(target)
    except PagecageError as error:
        reason = str(error).partition("\n")[0].replace(str(target), bundle.name)
        raise PagecageError(reason, f"remove {bundle}, or bundle its run again") from None
