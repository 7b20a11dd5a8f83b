"""`pagecage replay`: a program, image or compose file of the user's under a cage."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from pagecage.cli.compare import GateOptions
from pagecage.cli.output import Json, examples, require_before_command, typed_command
from pagecage.cli.show import report, show_run
from pagecage.errors import EXIT_OK, PagecageError
from pagecage.planning.options import ImageOptions, ReplayOptions, ServiceOptions, given_options
from pagecage.terminal import COMMON, notify, notify_step

if TYPE_CHECKING:
    from pagecage.cli.execution import PreparedRun
    from pagecage.hosts.host import Host
    from pagecage.model.plan import Plan
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
_EXIT_STATUS = (
    "Exit status: the program's if it failed; 125 if pagecage failed, 126 or 127 if"
    "\nthe program cannot be started or found; else 5 or 6 for a gate"
    "\n(docs/EXIT_CODES.md)."
)
_USAGE = (
    "pagecage replay [OPTIONS] CAGE"
    " (-- COMMAND... | --command TEXT | --serve COMMAND --load COMMAND"
    " | --image NAME [-- ARGUMENTS...])"
)
app = App(name="replay", help_epilogue=examples("replay", _EXIT_STATUS), usage=_USAGE)


@Parameter(name="*", group=COMMON)
@dataclass(frozen=True, kw_only=True)
class ComparedCages:
    """The other cages of a replay.

    Parameters
    ----------
    others
        A further cage to compare with; repeatable
    no_control
        Leave out the run without limits
    """

    others: Annotated[
        tuple[str, ...], Parameter(name="--cage", metavar="CAGE", consume_multiple=False)
    ] = ()
    no_control: bool = False


@app.default
def replay(
    cage: str | None = None,
    /,
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    text: Annotated[str | None, Parameter(name="--command", metavar="TEXT")] = None,
    compared: ComparedCages = ComparedCages(),
    options: ReplayOptions = ReplayOptions(),  # noqa: B008 - frozen
    image: ImageOptions = ImageOptions(),  # noqa: B008 - frozen
    served: ServiceOptions = ServiceOptions(),  # noqa: B008 - frozen
    gate: GateOptions = GateOptions(),  # noqa: B008 - frozen
    dry_run: bool = False,
    as_json: Json = False,
) -> int:
    """Measure a program in a cage and without limits.

    A single run (one cage, --no-control, one repeat) has the terminal's input and output. Several
    runs end with a table, and each reads all of standard input if that is a file.

    Parameters
    ----------
    cage
        Cage, volume of the catalogue, or file with limits (`pagecage cage list`)
    command
        Program and its arguments; with --image those of its entry point
    text
        The command as one text; sh runs it if it has operators or globs of a shell
    dry_run
        Show the plan and its commands; start nothing
    """
    command = _words(cage, text, command)
    gate.check(repeats=None if dry_run else options.repeats)
    cages = [*([cage] if cage is not None else []), *compared.others]
    has_control = not compared.no_control
    planned = _plan(cages, has_control, command, options, image, served)
    if not dry_run:
        return _run(*planned, gate, as_json)
    from pagecage.cli.show import show_plan  # late, as all that help does without

    show_plan(*planned[:2], as_json=as_json)
    return EXIT_OK


def _run(plan: Plan, host: Host, found: FoundImage | None, gate: GateOptions, as_json: bool) -> int:
    from pagecage.cli.execution import create_run

    if found is not None and host.name != "local":
        found.save(notify_step)  # for a host whose engine lacks it
    prepared = create_run(plan, host, True, notify)
    status = measure_program(prepared, as_json)
    return status or gate.judge(prepared.folder.path, to_stderr=as_json)


def _words(cage: str | None, text: str | None, command: tuple[str, ...]) -> tuple[str, ...]:
    require_before_command(cage, "CAGE", command)
    if text is None:
        return command
    if command:
        raise PagecageError("--command and a command after -- are mutually exclusive", "give one")
    words, understood = command_words(text)
    notify(understood)
    return words


def _plan(
    cages: list[str],
    has_control: bool,
    command: tuple[str, ...],
    options: ReplayOptions,
    image: ImageOptions,
    served: ServiceOptions,
) -> tuple[Plan, Host, FoundImage | None]:
    from pagecage.planning.replay_plan import plan_for, plan_for_image, replay_cages

    typed = typed_command()
    if image != ImageOptions():
        for given in given_options(served):
            message = f"{given} and --image are mutually exclusive"
            raise PagecageError(message, "measure until the image serves: --ready-port PORT")
        return plan_for_image(
            cages, command, options, image, typed, notify, has_control=has_control
        )
    if not cages:
        raise PagecageError("pagecage replay requires CAGE", "pagecage replay --help")
    known = replay_cages(cages, options, has_control=has_control)
    return *plan_for(known, command, options, typed, notify, served), None


def measure_program(prepared: PreparedRun, as_json: bool) -> int:
    """Execute a replay, show its results, and return the exit status: the program's if it failed.

    A program that writes to standard output is followed by tables on standard error.
    """
    from pagecage.cli.execution import execute, exit_code

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
