"""A command that starts while files are cold, and the state of the files around it."""

from __future__ import annotations

import shlex
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pagecage.cli.exit_status import shell_status
from pagecage.cold import ColdCertificate, resident_pages
from pagecage.cold import cold as make_cold
from pagecage.errors import EXIT_FAILED, PagecageError
from pagecage.eviction.certificate import CommandRun
from pagecage.process import Process, spawn

_TRIES = 3


@dataclass(frozen=True)
class ColdCommand:
    """A command, and its text as the user typed it."""

    argv: tuple[str, ...]
    typed: str


def program(argv: Sequence[str]) -> ColdCommand:
    """Return a program with its arguments. Raises PagecageError if there is no such program."""
    if not argv[0] or "\0" in "".join(argv) or shutil.which(argv[0]) is None:
        raise PagecageError(f"there is no program {argv[0]!r}", "check its name and PATH")
    return ColdCommand(tuple(argv), shlex.join(argv))


def query(text: str) -> ColdCommand:
    """Return a command for the shell. Raises PagecageError for an empty one."""
    if not text.strip() or "\0" in text:
        raise PagecageError(
            f"--each-query: {text!r} is not a command", "--each-query 'psql -f a.sql'"
        )
    return ColdCommand(("sh", "-c", text), text)


def run_cold(
    paths: Sequence[str], command: ColdCommand, allow_pages: int, stdout: int | None
) -> ColdCertificate:
    """Make files cold, run a command, and return the certificate with the command's run.

    Raises NotCold, and PagecageError if another process reads the files before the command starts.
    """
    for _ in range(_TRIES):
        certificate = make_cold(paths, allow_pages=allow_pages)
        at_start = resident_pages(paths)
        if at_start <= allow_pages:
            break
    else:
        raise PagecageError(
            f"{at_start:,} pages came back before the command was started: another process reads"
            " the files",
            "end that process, or allow these pages: --allow-pages N",
            EXIT_FAILED,
        )
    begin = time.monotonic()
    status = _wait(spawn(list(command.argv), stdin=None, stdout=stdout, stderr=None))
    seconds = time.monotonic() - begin
    run = CommandRun(command.typed, at_start, resident_pages(paths), round(seconds, 6), status)
    return replace(certificate, run=run)


def exit_status(certificate: ColdCertificate) -> int:
    """Return the command's exit status as a shell reports it; 0 without a command."""
    return 0 if certificate.run is None else shell_status(certificate.run.exit_status)


def _wait(process: Process[bytes]) -> int:
    """Wait for the command and return its exit status.

    Ctrl-C reaches it from the terminal, other signals are forwarded, and the certificate is still
    made.
    """
    with _forwarded(process):
        return process.wait()


@contextmanager
def _forwarded(process: Process[bytes]) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, lambda *_: None)
    for number in numbers[1:]:
        signal.signal(number, lambda number, _: process.send_signal(number))
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
