"""The command line as a process, and its records."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from pagecage.cli.main import main
from pagecage.model.record import Record
from pagecage.process import PIPE, Completed, Process, run, spawn
from pagecage.runner.run_folder import RunFolder
from pagecage.verdicts.evaluate import Verdicts, evaluate
from tests.tree import ROOT

_LONGEST_SECONDS = 900.0
_HANDLED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def pagecage_argv(*words: str) -> list[str]:
    """Return the command `pagecage ...` of this checkout."""
    return [sys.executable, "-m", "pagecage.cli.main", *words]


def pagecage_in(folder: Path, *words: str, timeout_seconds: float = _LONGEST_SECONDS) -> Completed:
    """Run `pagecage ...` in a folder to its end, with its runs in `runs` there."""
    environment = {"PYTHONPATH": str(ROOT), "PAGECAGE_RUNS": str(folder / "runs")}
    return run(
        pagecage_argv(*words),
        check=False,
        cwd=folder,
        env=environment,
        timeout_seconds=timeout_seconds,
    )


class CommandLine:
    """`pagecage ...` as a process, with its runs in a folder of the test."""

    def __init__(self, runs: Path, latest: str = "smoke", **environment: str) -> None:
        """`latest` is the name of its newest run."""
        self.runs, self.latest = runs, latest
        self.environment = {"PAGECAGE_RUNS": str(runs), **environment}

    def argv(self, *arguments: str) -> list[str]:
        return pagecage_argv(*arguments)

    def start(self, *arguments: str) -> Process[bytes]:
        return spawn(self.argv(*arguments), stdout=PIPE, stderr=PIPE, env=self.environment)

    def end(self, *arguments: str) -> tuple[int, str]:
        """Run to the end; return the exit status and standard error."""
        process = self.start(*arguments)
        _, printed = process.communicate(timeout=_LONGEST_SECONDS)
        return process.returncode, printed.decode()

    def succeed(self, *arguments: str) -> str:
        """Run to the end, which must be a success; return standard error."""
        status, printed = self.end(*arguments)
        assert status == 0, printed
        return printed

    def folder(self) -> Path:
        return (self.runs / f"latest-{self.latest}").resolve()

    def records(self) -> list[Record]:
        """Return the last record of each trial: one that is not prepared is repeated."""
        return list(RunFolder(self.folder()).last_records().values())

    def every_attempt(self) -> list[Record]:
        """Return the records of all attempts, in the order of writing."""
        return RunFolder(self.folder()).records()

    def wait_until(self, true: Callable[[], bool], process: Process[bytes]) -> None:
        deadline = time.monotonic() + _LONGEST_SECONDS
        while not true():
            assert process.poll() is None, (
                process.stderr.read() if process.stderr else b""
            ).decode()
            assert time.monotonic() < deadline, "it never came to that"
            time.sleep(0.1)


def verdicts(command_line: CommandLine, record: Record) -> Verdicts:
    return evaluate(record, series(command_line, record))


def series(command_line: CommandLine, record: Record) -> list[Mapping[str, Any]]:
    text = (command_line.folder() / record.traces["sampler"]).read_text()
    return [json.loads(line) for line in text.splitlines()]


def called(words: Sequence[object]) -> int:
    """Run `pagecage ...` in this process; return its exit status."""
    argv = ["pagecage", *map(str, words)]
    handlers = {number: signal.getsignal(number) for number in _HANDLED}
    with mock.patch.object(sys, "argv", argv):
        try:
            return main()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
