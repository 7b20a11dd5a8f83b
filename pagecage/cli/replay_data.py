"""The files that a replay's command reads, looked at before anything starts: as a trial would, from as far as here."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pagecage.errors import PagecageError
from pagecage.hosts.host import AgentHost
from pagecage.runner.uploads import UploadedFile, make_carried, on_host

Say = Callable[[str], None]


def implied_copies(cold: Sequence[str], copies: Sequence[str], host_name: str) -> tuple[str, ...]:
    """Return the `--cold` paths to copy although no `--copy` names them.

    A relative path means a file here. A command that runs on another host, or among what `--copy` brings, reads a copy.
    """
    if host_name == "local" and not copies:
        return ()
    copied = make_carried(copies)
    here = (path for path in cold if path and "\0" not in path and not Path(path).is_absolute())
    return tuple(path for path in here if os.path.lexists(path) and on_host(path, copied, "") is None)


def check_cold(cold: Sequence[str], host: AgentHost, carried: Sequence[UploadedFile], say: Say) -> None:
    """Raise PagecageError for a `--cold` that no trial on this host could find.

    Of what is copied, and of what lies on this machine where that is the host, there must be a file. A relative path is
    meant from where the command runs: here, or among what was copied. An absolute one in a guest is seen by the trial.
    """
    for path in cold:
        if not path or "\0" in path:
            raise PagecageError(f"--cold: {path!r} is not a name of a file", "name a file or a directory that is there")
        is_carried = on_host(path, carried, "") is not None
        if is_carried or host.name == "local" or not Path(path).is_absolute():
            _require_file(path)
        else:
            say(f"whether {path} is in the {host.name} host is seen when it runs")


def _require_file(path: str) -> None:
    if not os.path.exists(path):  # noqa: PTH110 - Path.exists() raises for a name that is too long
        raise PagecageError(f"--cold: there is no {path}", "name a file or a directory that is there")
    below = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    if not (Path(path).is_file() or any(file.is_file() and not file.is_symlink() for file in below)):
        raise PagecageError(f"--cold: there is no file in {path}", "name files, or leave --cold out")
