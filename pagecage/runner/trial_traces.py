"""Traces of a running trial, as they arrive: whole under their names, or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from pagecage.model.record import TraceFile
from pagecage.runner.frames import BadFrame, Frame
from pagecage.runner.run_folder import RunFolder
from pagecage.whole_files import whole_file


class TrialTraces:
    """The traces of the running trial.

    Each is written to a temporary name, forced to disk and renamed, so that a record never names a
    trace that is not whole.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._paths: dict[str, str] = {}
        self._files: dict[str, TraceFile] = {}
        self._names: set[str] = set()
        self._open: _OpenTrace | None = None

    def add(self, trial_id: str, attempt: int, frame: Frame, *, is_kept: bool) -> None:
        """Add a piece of a trace. Without `is_kept` it is read and dropped.

        Raises BadFrame for a second trace of one name, and if the run's traces are too long.
        """
        name, length = frame.header["name"], frame.header["length"]
        if self._open is None and len(frame.piece) + frame.left_bytes == length:
            if name in self._names:
                raise BadFrame(f"the trace {name!r} twice")
            self._names.add(name)
            self._folder.require_room_for_trace(length)
            if is_kept:
                self._open = _OpenTrace(self._folder.trace_path(trial_id, attempt, name))
        if self._open is None:
            return
        self._open.write(frame.piece)
        if not frame.left_bytes:
            path = self._open.path.relative_to(self._folder.path).as_posix()
            self._files[path] = self._open.finish()
            self._paths[Path(name).stem] = path
            self._open = None

    def take(self) -> tuple[Mapping[str, str], Mapping[str, TraceFile]]:
        """Return the paths by collector and the files by path, and forget them."""
        self.drop_open()
        taken = self._paths, self._files
        self._paths, self._files, self._names = {}, {}, set()
        return taken

    def drop_open(self) -> None:
        """Remove what has arrived of a trace that is not whole."""
        if self._open is not None:
            self._open.drop()
            self._open = None


class _Dropped(Exception):
    """The reason why a file is not kept."""


class _OpenTrace:
    """A trace under a temporary name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._digest, self._bytes = hashlib.sha256(), 0
        self._stack = ExitStack()
        self._file: IO[bytes] = self._stack.enter_context(whole_file(path))

    def write(self, piece: bytes) -> None:
        self._file.write(piece)
        self._digest.update(piece)
        self._bytes += len(piece)

    def finish(self) -> TraceFile:
        self._stack.close()
        return TraceFile(self._bytes, self._digest.hexdigest())

    def drop(self) -> None:
        with suppress(_Dropped), self._stack:
            raise _Dropped
