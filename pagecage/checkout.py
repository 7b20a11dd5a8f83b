"""Paths of the project's files, and of the folders that pagecage writes to.

In a checkout all of them are below its top. An installed package has the files in `_data` beside
this module (tools/wheel_contents.py), as they lie in a checkout. It writes to the user's own
folders (XDG Base Directory Specification) and to the user's project.
"""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_DATA = _PACKAGE / "_data"
MARKER = "pagecage.toml"
"""The file that marks the top of a user's project; its contents are not read."""


def user_folder(variable: str, default: str) -> Path:
    """Return pagecage's folder below $`variable` if that is absolute, else below ~/`default`."""
    given = os.environ.get(variable, "")
    base = Path(given) if given.startswith("/") else Path.home() / default
    return base / "pagecage"


def find_project(start: Path) -> Path | None:
    """Return the nearest folder with pagecage.toml, or experiments/ and cgroups/; None without."""
    for folder in (start, *start.parents):
        parts = (folder / "experiments", folder / "cgroups")
        if os.path.isfile(folder / MARKER) or all(map(os.path.isdir, parts)):  # noqa: PTH113 - pathlib raises PermissionError
            return folder
    return None


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


IS_INSTALLED = _DATA.is_dir()
"""True in an installed package, False in a checkout."""
TOP = _DATA if IS_INSTALLED else _PACKAGE.parent
"""The project's files: experiments/, cgroups/, build/host/bin/ ...; only read if installed."""
BUILD = user_folder("XDG_CACHE_HOME", ".cache") if IS_INSTALLED else TOP / "build"
"""Files that can be made again: the agent, a packed guest."""
LOGS = user_folder("XDG_STATE_HOME", ".local/state") / "log" if IS_INSTALLED else TOP / "build/log"
_HOME = user_folder("XDG_DATA_HOME", ".local/share") if IS_INSTALLED else TOP
PROJECT = find_project(_working_directory())
"""The project above the working directory, or None."""
OWN = PROJECT or _HOME
"""The folder with the user's experiments/, cgroups/ and runs/.

Without a project, it is a folder in the user's home, or the checkout itself.
"""
RUNS = _working_directory() / os.environ.get("PAGECAGE_RUNS", OWN / "runs")
