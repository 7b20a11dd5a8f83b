"""`pagecage cold`: files brought out of the page cache, with a certificate."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.cli.cold_command import ColdCommand, exit_status, program, query, run_cold
from pagecage.cli.examples import examples
from pagecage.cli.failures import printable
from pagecage.cli.numbers import whole
from pagecage.cli.output import Json, notify
from pagecage.cli.paths import NewFile, writing
from pagecage.cold import ColdCertificate, NotCold
from pagecage.cold import cold as make_cold
from pagecage.errors import PagecageError

_EXIT_STATUS = "Exit status: the command's own; 1 if pages stay, and then no command is started."
_USAGE = "pagecage cold [OPTIONS] FILES... [-- COMMAND...]"
_END_OF_FILES = "--"
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
    """Bring files out of the page cache, prove it, and run a command on them.

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
        _show_stayed(error.certificate)
        raise
    finally:
        _write(made, bool(each_query), certificate, as_json)
    return exit_status(made[-1])


def _split(
    words: Sequence[str], argv: Sequence[str], queries: Sequence[str]
) -> tuple[list[str], list[ColdCommand]]:
    """Return the files, and the commands: the one that was typed after `--`, or the queries."""
    typed = list(argv[argv.index(_END_OF_FILES) + 1 :]) if _END_OF_FILES in argv else []
    count = len(words) - len(typed)
    if not count:
        raise PagecageError("no file was given", "pagecage cold FILES... [-- COMMAND...]")
    if _END_OF_FILES in argv and not typed:
        raise PagecageError("there is no command after --", "name a program, or leave out --")
    if typed and queries:
        raise PagecageError("a command and --each-query are mutually exclusive", "give one of them")
    return list(words[:count]), [program(typed)] if typed else list(map(query, queries))


def _make_all(
    paths: Sequence[str],
    commands: Sequence[ColdCommand],
    allow_pages: int,
    made: list[ColdCertificate],
    as_json: bool,
) -> None:
    """Add a certificate for each command to `made`, up to the first command that fails."""
    if not commands:
        made.append(make_cold(paths, allow_pages=allow_pages))
        if not as_json:
            print("\n".join(_lines(made[0])))
    for command in commands:
        made.append(run_cold(paths, command, allow_pages, _STDERR if as_json else None))
        notify(f"{made[-1].summary()}\n{printable(made[-1].run_line())}")
        if exit_status(made[-1]):
            break


def _lines(certificate: ColdCertificate) -> Iterator[str]:
    """Yield the certificate for a terminal: its summary, then the pages of each file."""
    yield certificate.summary()
    yield f"{'before':>10}  {'after':>8}  file"
    for file in certificate.files[:_MOST_SHOWN]:
        yield f"{file.pages_before:>10,}  {file.pages_after:>8,}  {printable(file.path)}"
    more = len(certificate.files) - _MOST_SHOWN
    if more > 0:
        yield f"and {more:,} more, which --json lists"


def _show_stayed(certificate: ColdCertificate) -> None:
    """Print the files with pages left, if the error does not already name the only one."""
    lines = certificate.stayed()
    if len(lines) > 1:
        notify("\n".join(map(printable, lines[:_MOST_SHOWN])))


def _write(
    made: Sequence[ColdCertificate], is_queries: bool, target: Path | None, as_json: bool
) -> None:
    """Write the certificate, or those of all queries, where they were asked for."""
    if not made:
        return
    documents = [one.to_json() for one in made]
    whole_document = {"type": "cold_queries", "queries": documents} if is_queries else documents[0]
    if target is not None:
        with writing(target):
            target.write_text(json.dumps(whole_document, indent=2) + "\n")
    if as_json:
        print(json.dumps(whole_document))
