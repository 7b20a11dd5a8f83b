"""A command with the times of its output lines and the records of its run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pagecage.errors import PagecageError
from pagecage.model.record import Record, read_records
from pagecage.process import PIPE, spawn
from reliability.bench.say import say

_OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")


@dataclass(frozen=True)
class Timed:
    """A command that has ended: its start, lines and end in seconds since the epoch, and its
    records.
    """

    began: float
    lines: tuple[tuple[float, str], ...]
    ended: float
    records: tuple[Record, ...]

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    @property
    def starts(self) -> list[float]:
        """The start of each trial by the clock of its host, which the harness sets."""
        return [float(record.phases[0].start_wall_seconds) for record in self.records]

    def said(self, words: str) -> float:
        """Return when it first printed these words. Raises PagecageError if it did not."""
        for moment, line in self.lines:
            if words in line:
                return moment
        raise PagecageError(f"the command never said {words!r}", "run it by hand", 1)


def timed(
    name: str, runs: Path, wish: str, cwd: Path, env: Mapping[str, str], *, aloud: bool = False
) -> Timed:
    """Run `make experiment` for an experiment. Raises PagecageError if it fails.

    `runs` is the folder of its run. With `aloud` its output is also printed.
    """
    argv = ["make", "experiment", f"NAME={name}", f"HOST={wish}", "ARGS=--yes"]
    inherited = dict.fromkeys(_OF_MAKE, "") | {"PAGECAGE_RUNS": str(runs), **env}
    began, lines = time.time(), []
    with spawn(argv, stderr=PIPE, cwd=cwd, env=inherited) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append((time.time(), line.decode(errors="replace").rstrip()))
            if aloud:
                say(f"  {lines[-1][1]}")
    ended = time.time()
    if process.returncode != 0:
        raise PagecageError(
            f"`{' '.join(argv)}` failed: {lines[-1][1] if lines else ''}", f"run it in {cwd}", 1
        )
    found = read_records(Path(os.path.realpath(runs / f"latest-{name}")) / "records.jsonl")
    return Timed(began, tuple(lines), ended, tuple(found))
