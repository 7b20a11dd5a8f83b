"""`pagecage cold`: evict files from the page cache, and run a command on cold files."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.cli.execution import shell_status
from pagecage.cli.failures import printable
from pagecage.cli.output import Json, examples, forwarded, writing
from pagecage.errors import EXIT_OWN_FAILURE, PagecageError, exclusive, no_program
from pagecage.eviction import ColdCertificate, CommandRun, NotCold, resident_pages
from pagecage.eviction import cold as make_cold
from pagecage.planning.options import NewFile, whole
from pagecage.process import spawn
from pagecage.terminal import notify

_TRIES = 3


@dataclass(frozen=True)
class ColdCommand:
    """A command, and its text as the user typed it."""

    argv: tuple[str, ...]
    typed: str


def program(argv: Sequence[str]) -> ColdCommand:
    """Return a program with its arguments. Raises PagecageError if there is no such program."""
    if not argv[0] or "\0" in "".join(argv) or shutil.which(argv[0]) is None:
        raise no_program(argv[0])
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
            EXIT_OWN_FAILURE,
        )
    begin = time.monotonic()
    process = spawn(list(command.argv), stdin=None, stdout=stdout, stderr=None)
    with forwarded(process):
        status = process.wait()
    seconds = time.monotonic() - begin
    run = CommandRun(command.typed, at_start, resident_pages(paths), round(seconds, 6), status)
    return replace(certificate, run=run)


def exit_status(certificate: ColdCertificate) -> int:
    """Return the command's exit status as a shell reports it; 0 without a command."""
    return 0 if certificate.run is None else shell_status(certificate.run.exit_status)


_EXIT_STATUS = (
    "Exit status: the command's; 125 if pages stay, and then no command is started, or if pagecage"
    "\nfailed (docs/EXIT_CODES.md)."
)
_USAGE = "pagecage cold [OPTIONS] FILES... [-- COMMAND...]"
_MOST_SHOWN = 20
_STDERR = 2
app = App(name="cold", help_epilogue=examples("cold", _EXIT_STATUS), usage=_USAGE)


@app.default
def cold(
    *words: Annotated[str, Parameter(allow_leading_hyphen=True, name="FILES")],
    each_query: Annotated[
        tuple[str, ...], Parameter(negative=(), metavar="COMMAND", allow_leading_hyphen=True)
    ] = (),
    allow_pages: Annotated[int, whole(0, 2**53)] = 0,
    certificate: NewFile | None = None,
    as_json: Json = False,
) -> int:
    """Bring files out of the page cache, and run a command on them.

    Dirty pages are written first. Pages that a running process maps are paged out there, which
    needs root. Then the pages that are left are counted by cachestat(2). A server may keep running:
    its files are made cold before each query. Its own buffers, and caches below the kernel, stay.

    Parameters
    ----------
    words
        Files and directories; after --, a command and its arguments
    each_query
        Command for the shell, run after the files were made cold once more; may be repeated
    allow_pages
        Pages that may stay
    certificate
        Write the certificate as JSON to this file
    """
    paths, commands = _split(words, sys.argv, each_query)
    made: list[ColdCertificate] = []
    try:
        _make_all(paths, commands, allow_pages, made, as_json)
    except NotCold as error:
        made.append(error.certificate)
        stayed = error.certificate.stayed()
        if len(stayed) > 1:  # the error already names the only one
            notify("\n".join(map(printable, stayed[:_MOST_SHOWN])))
        raise
    finally:
        if made:
            _write(made, bool(each_query), certificate, as_json)
    return exit_status(made[-1])


def _write(
    made: Sequence[ColdCertificate], is_queries: bool, target: Path | None, as_json: bool
) -> None:
    documents = [one.to_json() for one in made]
    document = {"type": "cold_queries", "queries": documents} if is_queries else documents[0]
    if target is not None:
        with writing(target):
            target.write_text(json.dumps(document, indent=2) + "\n")
    if as_json:
        print(json.dumps(document))


def _split(
    words: Sequence[str], argv: Sequence[str], queries: Sequence[str]
) -> tuple[list[str], list[ColdCommand]]:
    """Return the files, and the commands: the one that was typed after `--`, or the queries."""
    has_end = "--" in argv
    typed = list(argv[argv.index("--") + 1 :]) if has_end else []
    count = len(words) - len(typed)
    if not count:
        raise PagecageError("no file was given", "pagecage cold FILES... [-- COMMAND...]")
    if has_end and not typed:
        raise PagecageError("there is no command after --", "name a program, or leave out --")
    if typed and queries:
        raise exclusive("a command", "--each-query")
    return list(words[:count]), [program(typed)] if typed else list(map(query, queries))


def _make_all(
    paths: Sequence[str],
    commands: Sequence[ColdCommand],
    allow_pages: int,
    made: list[ColdCertificate],
    as_json: bool,
) -> None:
    for command in commands:
        made.append(run_cold(paths, command, allow_pages, _STDERR if as_json else None))
        notify(f"{made[-1].summary()}\n{printable(made[-1].run_line())}")
        if exit_status(made[-1]):
            break
    if commands:
        return
    made.append(make_cold(paths, allow_pages=allow_pages))
    if not as_json:
        files = made[0].files
        print(f"{made[0].summary()}\n{'before':>10}  {'after':>8}  file")
        for file in files[:_MOST_SHOWN]:
            print(f"{file.pages_before:>10,}  {file.pages_after:>8,}  {printable(file.path)}")
        if (more := len(files) - _MOST_SHOWN) > 0:
            print(f"and {more:,} more, which --json lists")
