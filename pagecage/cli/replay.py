"""`pagecage replay`: a program, image or compose file of the user's under a cage."""

from __future__ import annotations

import re
import shlex
import sys
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.cli.container import ImageOptions, plan_for_image
from pagecage.cli.examples import examples
from pagecage.cli.execution import PreparedRun, create_run, execute, exit_code
from pagecage.cli.options import ReplayOptions, VolumeOptions
from pagecage.cli.output import Json, notify, typed_command
from pagecage.cli.replay_plan import ServiceOptions, plan_for
from pagecage.cli.run_plan import show_plan
from pagecage.cli.show import report, show_run
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.hosts.host import Host
from pagecage.planning.plan import Plan
from pagecage.runner.images import FoundImage

_QUOTED = re.compile(r"'[^']*'|\\.|\"((?:\\.|[^\"\\])*)\"", re.DOTALL)
_SHELL = re.compile(r"[|&;<>()$`*?\[\n]|(?<!\S)[~#]|\A\s*!\s|\A\s*[A-Za-z_]\w*=")
"""Operators, expansions, globs, comments and assignments (POSIX, Shell Command Language)."""
_IN_QUOTES = re.compile(r"[$`]")
"""Signs that a shell expands or unescapes between double quotes too."""


def command_words(text: str) -> tuple[tuple[str, ...], str]:
    """Return the words to run, and a sentence that states how the text was understood."""
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
    command = _words(text, command)
    plan, host, found = _plan(cage, command, options, image, volume, served)
    if dry_run:
        host.stop()
        show_plan(plan, host)
        return EXIT_OK
    if found is not None and host.name != "local":
        found.save(lambda step: notify(f"{step} ..."))  # for a host whose engine lacks it
    return _measure(create_run(plan, host, True, notify), as_json)


def _words(text: str | None, command: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return command
    if command:
        raise PagecageError("--command and a command after -- are mutually exclusive", "give one")
    words, understood = command_words(text)
    notify(understood)
    return words


def _plan(
    cage: str | None,
    command: tuple[str, ...],
    options: ReplayOptions,
    image: ImageOptions,
    volume: VolumeOptions,
    served: ServiceOptions,
) -> tuple[Plan, Host, FoundImage | None]:
    typed = typed_command()
    if image.is_given:
        if given := served.first_given():
            message = f"{given} and --image are mutually exclusive"
            raise PagecageError(message, "measure until the image serves: --ready-port PORT")
        return plan_for_image(cage, command, options, image, typed, notify, volume)
    if cage is None:
        raise PagecageError("pagecage replay requires CAGE", "pagecage replay --help")
    planned = plan_for(cage, command, options, typed, notify, volume=volume, served=served)
    return *planned, None


def _measure(prepared: PreparedRun, as_json: bool) -> int:
    status = execute(prepared, notify, _STDERR if as_json else _STDOUT)
    form = "json" if as_json else ""
    if not prepared.all_requirements_missed:
        if prepared.streams_output:
            tables = show_run(prepared.folder.path, form)
            print(tables, end="", file=sys.stdout if as_json else sys.stderr)
            notify(f"report: pagecage show {prepared.plan.run_id} --html")
        else:
            report(prepared.folder.path, form)
    return exit_code(prepared, status, notify)
