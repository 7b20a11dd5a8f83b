"""Checks of the files that a replayed command reads, before anything starts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pagecage.cli.output import Notify
from pagecage.errors import PagecageError
from pagecage.hosts.host import AgentHost
from pagecage.model.trial_data import TrialData
from pagecage.runner.uploads import RESTORED_FOLDER, UploadedFile, path_on_host


def implied_copies(
    cold: Sequence[str], uploads: Sequence[UploadedFile], place: str
) -> tuple[str, ...]:
    """Return the `--cold` paths to copy although no file of `--copy` (`uploads`) contains them.

    A relative path means a file on this machine. A command that runs in another place than
    `local`, or in the directory of the copies, reads a copy.
    """
    if place == "local" and not uploads:
        return ()
    relative = (path for path in cold if path and "\0" not in path and not Path(path).is_absolute())
    return tuple(
        path
        for path in relative
        if os.path.lexists(path) and path_on_host(path, uploads, "") is None
    )


def is_only_here(program: str, uploads: Sequence[UploadedFile], place: str) -> bool:
    """Return whether a program is named by a relative path that another place does not have."""
    is_relative = "/" in program and not Path(program).is_absolute()
    return (
        place != "local"
        and is_relative
        and "\0" not in program
        and Path(program).is_file()
        and path_on_host(program, uploads, "") is None
    )


def copied_data(writes: bool, uploads: Sequence[UploadedFile], host: AgentHost) -> TrialData | None:
    """Return the copied files as data that are restored before each trial; None without --writes.

    Raises PagecageError if nothing is copied: files in place are never written by pagecage.
    """
    if not writes:
        return None
    if not uploads:
        raise PagecageError(
            "--writes restores copies, and nothing is copied",
            "name the files with --copy; the command runs in their copy",
        )
    size_bytes = sum(file.size_bytes for file in uploads)
    return TrialData(
        writes=True, size_bytes=size_bytes, copied_to=f"{host.data_dir}/{RESTORED_FOLDER}"
    )


def restored_base(data: TrialData | None, directory: str | None) -> str | None:
    """Return the base of the restored copies if the command runs in them, else None.

    All copies are then part of the original. Of a container only the volumes are restored.
    """
    base = data.copied_to if data else None
    return base if base and directory and directory.startswith(f"{base}/") else None


def check_cold(
    cold: Sequence[str], host: AgentHost, uploads: Sequence[UploadedFile], notify: Notify
) -> None:
    """Raise PagecageError for a `--cold` path that no trial on this host could find.

    Copied files, and all files on host local, must exist now. A relative path is relative to the
    command's working directory. An absolute path in a guest is checked by the trial.
    """
    for path in cold:
        if not path or "\0" in path:
            raise PagecageError(
                f"--cold: {path!r} is not a valid path", "name an existing file or directory"
            )
        is_copied = path_on_host(path, uploads, "") is not None
        if is_copied or host.name == "local" or not Path(path).is_absolute():
            _require_file(path)
        else:
            notify(
                f"--cold: {path} is on the {host.name} host, so each trial checks whether it exists"
            )


def _require_file(path: str) -> None:
    if not os.path.exists(path):  # noqa: PTH110 - Path.exists() raises for a name that is too long
        raise PagecageError(
            f"--cold: {path!r} does not exist", "name an existing file or directory"
        )
    below = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    if not (
        Path(path).is_file() or any(file.is_file() and not file.is_symlink() for file in below)
    ):
        raise PagecageError(f"--cold: {path!r} contains no file", "name files, or remove --cold")
