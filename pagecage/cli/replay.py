"""`pagecage replay`: a program, image or compose file of the user's under a cage."""

from __future__ import annotations

import re
import shlex
import sys
from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.cli.analyse import report, show_run
from pagecage.cli.examples import examples
from pagecage.cli.execution import (
    PreparedRun,
    all_requirements_missed,
    create_run,
    execute,
    exit_code,
)
from pagecage.cli.options import ReplayOptions, VolumeOptions
from pagecage.cli.output import Json, OutputFormat, notify, typed_command
from pagecage.cli.plan_listing import show_plan
from pagecage.cli.replay_image import ImageOptions, PlannedReplay, plan_for_image
from pagecage.cli.replay_plan import ServiceOptions, plan_for, refuse_service
from pagecage.errors import EXIT_OK, PagecageError

_QUOTED = re.compile(r"'[^']*'|\\.|\"((?:\\.|[^\"\\])*)\"", re.DOTALL)
_SHELL = re.compile(r"[|&;<>()$`*?\[\n]|(?<!\S)[~#]|\A\s*!\s|\A\s*[A-Za-z_]\w*=")
"""Operators, expansions, globs, comments and assignments (POSIX, Shell Command Language)."""
_IN_QUOTES = re.compile(r"[$`]")
"""Signs that a shell expands or unescapes between double quotes too."""


def command_words(text: str) -> tuple[tuple[str, ...], str]:
    """Return the words to run, and a sentence that states how the text was understood.

    Nothing is expanded here. A text with signs of a shell becomes `sh -c` of the whole text. Raises
    PagecageError for an empty text and for a quotation mark without its other.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        reason = str(error).lower()
        raise PagecageError(f"--command: {text!r} is incomplete: {reason}", "quote it") from None
    if "\0" in text or not words or not words[0]:
        raise PagecageError(f"--command: {text!r} has no program", "--command 'wc -l FILE'")
    if needs_shell(text):
        words = ("sh", "-c", text)
        return words, f"in the cage, by a shell: {shlex.join(words)}"
    return words, f"in the cage, a program with arguments: {shlex.join(words)}"


def needs_shell(text: str) -> bool:
    """Return whether a shell would do more with the text than split it into words."""
    quoted = [match[1] for match in _QUOTED.finditer(text) if match[1]]
    if "\\\n" in text or any(_IN_QUOTES.search(part) for part in quoted):
        return True
    return _SHELL.search(_QUOTED.sub("x", text)) is not None


_STDOUT, _STDERR = 1, 2
_EXIT_STATUS = "Exit status: the program's own if it failed, else as in `pagecage --help`."
_USAGE = (
    "pagecage replay [OPTIONS] CAGE"
    " (-- COMMAND... | --command TEXT | --serve COMMAND --load COMMAND"
    " | --image NAME [-- ARGUMENTS...])"
)
app = App(name="replay", help_epilogue=examples("replay", _EXIT_STATUS), usage=_USAGE)


@app.default
def replay(
    cage: str | None = None,
    /,
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    text: Annotated[str | None, Parameter(name="--command", metavar="TEXT")] = None,
    options: ReplayOptions = ReplayOptions(),  # noqa: B008 - frozen
    image: ImageOptions = ImageOptions(),  # noqa: B008 - frozen
    volume: VolumeOptions = VolumeOptions(),  # noqa: B008 - frozen
    served: ServiceOptions = ServiceOptions(),  # noqa: B008 - frozen
    dry_run: bool = False,
    as_json: Json = False,
) -> int:
    """Measure what a cage's limits cost any program.

    The program runs in the cage and without limits. A single run (one cage, --no-control, one
    repeat) has the terminal's standard input and output, and ends with the program's exit status.
    With several runs a table is shown, and each run reads all of standard input if that is a file.
    With --serve the program is a server in the cage, and the load that drives it is measured.

    Parameters
    ----------
    cage
        Cage, volume type or named size (`pagecage cage list`); with --compose the file's own limits
    command
        Program and its arguments; with --image the arguments of the image's entry point
    text
        The command as one text instead. With operators, expansions or globs of a shell, sh runs
        it in the cage; a line says so
    dry_run
        Show the plan and its commands; start nothing
    """
    command = _words(command, text)
    of = partial(_of_image, image) if image.is_given else _of_program
    found = of(cage, command, options, volume, served)
    if dry_run:
        found.host.stop()
        show_plan(found.plan, found.host)
        return EXIT_OK
    return _measure(found, as_json)


def _measure(found: PlannedReplay, as_json: bool) -> int:
    """Run the plan and report it; return the exit status."""
    found.provide(notify)
    prepared = create_run(found.plan, found.host, True, notify)
    status = execute(prepared, notify, _STDERR if as_json else _STDOUT)
    _report(prepared, as_json)
    return exit_code(prepared, status, notify)


def _words(command: tuple[str, ...], text: str | None) -> tuple[str, ...]:
    if text is None:
        return command
    if command:
        raise PagecageError("--command and a command after -- are mutually exclusive", "give one")
    words, understood = command_words(text)
    notify(understood)
    return words


def _of_image(
    image: ImageOptions,
    cage: str | None,
    arguments: tuple[str, ...],
    options: ReplayOptions,
    volume: VolumeOptions,
    served: ServiceOptions,
) -> PlannedReplay:
    refuse_service(served)
    return plan_for_image(cage, arguments, options, image, typed_command(), notify, volume)


def _of_program(
    cage: str | None,
    argv: tuple[str, ...],
    options: ReplayOptions,
    volume: VolumeOptions,
    served: ServiceOptions,
) -> PlannedReplay:
    if cage is None:
        raise PagecageError("pagecage replay requires CAGE", "pagecage replay --help")
    typed = typed_command()
    plan, host = plan_for(cage, argv, options, typed, notify, volume=volume, served=served)
    return PlannedReplay(plan, host, None)


def _report(prepared: PreparedRun, as_json: bool) -> None:
    """Make the report and show its tables.

    After a run that printed the program's output, show the tables alone, on standard error.
    """
    if all_requirements_missed(prepared):
        return
    if not prepared.streams_output:
        report(prepared.folder.path, OutputFormat(as_json=as_json).options(), notify)
        return
    table = show_run(prepared.folder.path, OutputFormat(as_json=as_json).options())
    print(table, end="", file=sys.stdout if as_json else sys.stderr)
    notify(f"report: pagecage show {prepared.plan.run_id} --html")
