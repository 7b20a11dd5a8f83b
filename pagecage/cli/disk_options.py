"""The option `--disk`, which names directories on other disks of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pagecage.cli.paths import refusal
from pagecage.errors import PagecageError

Disks = Annotated[tuple[str, ...], Parameter(name="--disk", metavar="NAME=DIR")]


def parse_disks(words: Sequence[str]) -> dict[str, str]:
    """Return a directory by the name of each disk.

    Raises PagecageError for a word without a name or a directory, and for a name given twice.
    """
    found: dict[str, str] = {}
    for word in words:
        name, _, folder = word.partition("=")
        if not name or not folder:
            raise PagecageError(f"--disk: {word!r} is not NAME=DIR", "--disk wal=/mnt/other")
        if name in found:
            raise PagecageError(f"--disk: {name!r} is given twice", "give each disk once")
        if reason := refusal(folder, is_folder=True):
            raise PagecageError(f"--disk {name}: {folder!r} {reason}", "name a directory")
        found[name] = str(Path(folder).absolute())
    return found
