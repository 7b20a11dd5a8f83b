"""Entry point of the command line, and the table of its verbs."""

from __future__ import annotations

import io
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App, CycloptsError, Parameter

from pagecage.checkout import OWN, TOP
from pagecage.cli import failures
from pagecage.cli.output import examples
from pagecage.errors import (
    EXIT_FAILED,
    EXIT_HOST,
    EXIT_INTERRUPTED,
    EXIT_OK,
    RUNNERS,
    PagecageError,
    refusal_of_system,
    runner_code,
)
from pagecage.terminal import ARGUMENTS, COMMON, notify, set_verbosity
from pagecage.version import VERSION

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions


_INDENT = 2
_NAME_COLUMNS, _VERB_COLUMNS = 24, 13
_MOST_COLUMNS = 100


def shown_default(value: object) -> object | None:
    """Return the default value for the help. None for a flag, an empty list, and no default."""
    if value is False or value == () or value is None:
        return None
    if isinstance(value, float):
        return f"{value:g}"
    for top in (OWN, TOP):
        if isinstance(value, Path) and value.is_relative_to(top):
            return value.relative_to(top)
    return value


class HelpPage:
    """A help formatter for cyclopts."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:  # noqa: ARG002
        width = _width(console)
        if lines := [line for entry in panel.entries for line in _entry_lines(entry, width)]:
            title = "Options" if panel.title == "Parameters" else panel.title  # of a nested App
            _print(console, ["", f"{title}:", *lines])

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:  # noqa: ARG002
        _print(console, [f"Usage: {_plain(usage).removeprefix('Usage: ')}"])

    def render_description(self, console: Console, options: ConsoleOptions, text: Any) -> None:  # noqa: ARG002
        """Print the paragraphs below the usage line, each filled to the width of the terminal."""
        for paragraph in _plain(text).split("\n\n"):
            _print(console, ["", *textwrap.wrap(paragraph, _width(console))])


def _width(console: Console) -> int:
    return min(console.width, _MOST_COLUMNS)


def _print(console: Console, lines: Iterable[str]) -> None:
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _plain(text: Any) -> str:
    return str(getattr(text, "primary_renderable", text) or "").strip()


def _entry_lines(entry: HelpEntry, width: int) -> list[str]:
    shorts, names = (
        [*entry.positive_shorts, *entry.negative_shorts],
        [*entry.positive_names, *entry.negative_names],
    )
    written = ", ".join([*shorts, *names]) + (f" {entry.metavar}" if entry.metavar else "")
    notes = [f"one of: {', '.join(entry.choices)}"] if entry.choices else []
    notes += [f"default: {entry.default}"] if entry.default is not None else []
    text = _plain(entry.description).removesuffix(".")
    text = f"{text} ({'; '.join(notes)})".strip() if notes else text
    return _named_lines(entry.positional_label or written, text, width)


def _named_lines(name: str, text: str, width: int, column: int = _NAME_COLUMNS) -> list[str]:
    """Return a name with its text from `column` on; a long name has a line of its own."""
    name, columns = " " * _INDENT + name, width - column
    lines = textwrap.wrap(text, columns, break_on_hyphens=False, break_long_words=False) or [""]
    first = [name] if len(name) + _INDENT > column else []
    heads = [""] * len(lines) if first else [name, *[""] * (len(lines) - 1)]
    rows = (f"{head:{column}}{line}" for head, line in zip(heads, lines, strict=True))
    return first + [row.rstrip() for row in rows if row.strip()]


_ABOUT = "Measure what I/O and memory limits cost a program that reads from disk."
app = App(
    name="pagecage",
    version=VERSION,
    help_format="plaintext",
    help_formatter=HelpPage(),
    help=_ABOUT,
    default_parameter=Parameter(
        negative=(), show_default=shown_default, json_list=False, json_dict=False
    ),
    group_arguments=ARGUMENTS,
    group_parameters=COMMON,
    suppress_keyboard_interrupt=False,
)
VERBS = {
    "Measure": {
        "demo": ("demo:demo", "Show what a slow disk costs, with a file that pagecage makes"),
        "replay": ("replay:app", "Measure a program in a cage and without limits"),
        "run": ("run:run", "Run an experiment, make its report and show its tables"),
        "list": ("listing:list_experiments", "List the experiments with their questions"),
        "sweep": ("sweep:app", "Measure a command or an experiment at several values of a limit"),
        "memory": ("memory:app", "Find the least memory that a program needs in a cage"),
        "shell": ("shell:app", "Open a shell in a cage"),
        "cold": ("cold:app", "Bring files out of the page cache, and run a command on them"),
    },
    "Read results": {
        "show": ("show:show", "Show a run's tables, verdicts and claims"),
        "compare": ("compare:compare", "Compare runs, judge one by gates, or save a baseline"),
        "history": ("compare:history", "Show how a figure changed from run to run"),
        "predict": ("predict:predict", "Predict the time of a stored run on cloud volumes"),
        "runs": ("runs:app", "List stored runs with the room that they take, and remove them"),
        "export": ("export:export", "Pack a run into one archive"),
        "import": ("export:import_", "Unpack and check an archive, and make its report again"),
        "publish": ("export:publish", "Make a static site of reports, claims and documents"),
        "articles": ("articles:app", "Compare published figures with stored runs"),
    },
    "Limits and hosts": {
        "cage": ("cage:app", "List, show and import cages and volumes of the catalogue"),
        "volume": ("volume:app", "Check, watch and disturb a simulated volume"),
        "host": ("host:app", "Prepare hosts and control the embedded guest"),
        "inspect": ("inspect:inspect", "Show which limits are in force for a running program"),
        "probe": ("probe:probe", "Measure a disk under its present limits"),
        "doctor": ("doctor:doctor", "Check what this machine has and lacks for measuring"),
        "init": ("init:app", "Make a project with an experiment around a command"),
    },
}
"""The verbs by heading: the function or App of each, and the first line of its page."""
RENAMED = {
    "plan": "run NAME --dry-run",
    "baseline": "compare RUN --save-baseline FILE",
    "bundle": "export",
    "render": "import",
    "claims": "articles claims",
    "answers": "articles answers",
    "fidelity": "articles fidelity",
    "schema": "articles schema",
    "floor": "cage floor",
    "verify": "inspect",
    **{
        f"volume {kind}": f"volume event {kind}"
        for kind in ("pause", "degrade", "delay", "fail", "detach")
    },
}
"""Verbs of earlier versions, each with the command that replaces it."""
for _verbs in VERBS.values():
    for _verb, (_function, _) in _verbs.items():
        # An App has its own examples.
        _more = {} if _function.endswith(":app") else {"help_epilogue": examples(_verb)}
        app.command(f"pagecage.cli.{_function}", name=_verb, **_more)
_GENERAL = {
    "-h, --help": "Show this help, or that of the verb",
    "--version": "Show the version",
    "--install-completion": "Install completion of verbs and options for your shell",
    "-q, --quiet": "Print results and errors alone",
    "-v, --verbose": "Print everything that is known",
}
_END = """Examples:

  pagecage demo
  pagecage replay customer --cold index.db -- ./server --load-index
  pagecage replay aws-gp3 --size 500GiB --cold data -- grep -r needle data
  pagecage run constrained-random
  pagecage show constrained-random

`pagecage help VERB` describes one verb, docs/EXIT_CODES.md the exit status of each."""


def overview(width: int) -> str:
    """Return the page of all verbs. It is not made by cyclopts, which would import each of them."""
    lines = ["Usage: pagecage VERB [OPTIONS] [ARGUMENTS]", "", _ABOUT]
    for title, verbs in VERBS.items():
        lines += ["", f"{title}:"]
        for verb, (_, summary) in verbs.items():
            lines += _named_lines(verb, summary, width, _VERB_COLUMNS)
    lines += ["", "Options of every verb:"]
    for name, text in _GENERAL.items():
        lines += _named_lines(name, text, width)
    return "\n".join([*lines, "", _END])


_LEVELS = {"-q": -1, "--quiet": -1, "-v": 1, "--verbose": 1}


def load_verbs() -> None:
    """Import every verb: cyclopts knows none of its options before."""
    for verb in (verb for verbs in VERBS.values() for verb in verbs):
        app[verb]


def split_verbosity(argv: Sequence[str]) -> tuple[list[str], int]:
    """Return the arguments without -q and -v, and the level that these choose.

    Everything after `--` is the program's. `help VERB` becomes `VERB --help`.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    own, rest = argv[:end], argv[end:]
    words = [word for word in own if word not in _LEVELS]
    level = next((_LEVELS[word] for word in reversed(own) if word in _LEVELS), 0)
    words = [*words[1:], "--help"] if words[:1] == ["help"] else words
    return [*words, *rest], level


def main() -> int:
    words, level = split_verbosity(sys.argv[1:])
    set_verbosity(level)
    if words in ([], ["-h"], ["--help"]):
        print(overview(min(shutil.get_terminal_size().columns, _MOST_COLUMNS)))
        return EXIT_OK
    if words[0] == "--install-completion":  # its script describes every verb
        app.register_install_completion_command()
        load_verbs()
    # File names may be invalid UTF-8, and locales may lack characters.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # SIGTERM and SIGHUP clean up like Ctrl-C. Programs started by a shell's `&` and by cron
    # ignore SIGINT.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        status, is_own = _call_verb(words)
    except BrokenPipeError:
        status, is_own = EXIT_FAILED, True
        failures.give_up_output()
    except OSError:  # not even the message could be printed
        status, is_own = EXIT_HOST, True
        failures.give_up_output()
    return runner_code(status) if is_own and words[:1] and words[0] in RUNNERS else status


def _call_verb(words: list[str]) -> tuple[int, bool]:
    """Run a verb; return its exit status, and whether it is one of a failure of pagecage."""
    try:
        status = app(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return int(status or EXIT_OK), False
    except PagecageError as error:
        return failures.report(error), True
    except CycloptsError as error:
        return failures.report(failures.command_line_error(error, RENAMED)), True
    except KeyboardInterrupt:
        notify("interrupted")
        return EXIT_INTERRUPTED, True
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - any other exception is a defect of pagecage
        if refused := refusal_of_system(error):
            return failures.report(refused), True
        return failures.report_defect(error), True


if __name__ == "__main__":
    sys.exit(main())
