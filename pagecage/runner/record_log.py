"""The attempts in a run folder: the part of its records by which a campaign goes on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pagecage.errors import PagecageError
from pagecage.model.record import Record, records_of_lines


@dataclass(frozen=True)
class Attempt:
    """The part of a record that decides what runs next; a record is a hundred times as large."""

    trial_id: str
    number: int
    outcome: str
    is_final: bool
    is_measured: bool


def attempt_of(record: Record) -> Attempt:
    """Return the attempt that a record is of."""
    return Attempt(
        record.trial_id,
        record.attempt,
        record.outcome,
        record.is_final,
        record.measured is not None,
    )


class RecordLog:
    """A file of records, to which lines are appended and from which none is removed.

    A campaign asks for its attempts several times per machine state. Reading all records each time
    took 70 ms of CPU time per trial in a plan of 1,000 trials.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget(0)

    def _forget(self, inode: int) -> None:
        self._inode, self._bytes, self._lines = inode, 0, 0
        self._attempts: list[Attempt] = []

    def attempts(self) -> list[Attempt]:
        """Return every attempt, in the order of writing.

        A last line without a newline may still be written, so it is read again the next time.
        Raises PagecageError as `read_records` does.
        """
        if not self._path.exists():
            return []
        try:
            with self._path.open("rb") as file:
                self._go_to_new_lines(file)
                last = self._read_on(file)
                return self._attempts + last
        except OSError as error:
            raise PagecageError(
                f"{self._path} cannot be read: {error.strerror}", f"ls -l {self._path}"
            ) from None

    def _go_to_new_lines(self, file: IO[bytes]) -> None:
        """Skip the lines that are known; none of another or shorter file."""
        found = os.fstat(file.fileno())
        if found.st_ino != self._inode or found.st_size < self._bytes:
            self._forget(found.st_ino)
        file.seek(self._bytes)

    def _read_on(self, file: IO[bytes]) -> list[Attempt]:
        """Keep the attempts of whole lines; return that of a last line without a newline."""
        for line in file:
            found = [*map(attempt_of, records_of_lines([line], self._path, self._lines + 1))]
            if not line.endswith(b"\n"):
                return found
            self._attempts += found
            self._bytes += len(line)
            self._lines += 1
        return []
