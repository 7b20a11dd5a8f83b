"""A definition's own programs on the host, written from the request's texts."""

from __future__ import annotations

import shutil
from pathlib import Path

from pagecage.agent.protocol.request import RunRequest


def programs_folder(request: RunRequest) -> Path:
    """Return the folder that {programs} stands for."""
    return request.spool / "programs"


def write_own_programs(request: RunRequest) -> None:
    """Write the request's programs to their folder; those of an earlier request are removed.

    Every user may run them: a program that root starts may go on as another user.
    """
    folder = programs_folder(request)
    shutil.rmtree(folder, ignore_errors=True)
    if request.own_programs:
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    for name, text in request.own_programs.items():
        path = folder / Path(name).name
        path.write_text(text)
        path.chmod(0o755)
