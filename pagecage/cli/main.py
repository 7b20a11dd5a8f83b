"""Entry point of the command line, and the table of its verbs."""

from __future__ import annotations

import io
import signal
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App, CycloptsError, Group, Parameter

from pagecage.checkout import OWN, TOP
from pagecage.cli import failures
from pagecage.cli.examples import examples
from pagecage.cli.output import notify
from pagecage.errors import (
    EXIT_FAILED,
    EXIT_HOST,
    EXIT_INTERRUPTED,
    EXIT_OK,
    PagecageError,
    refusal_of_system,
)
from pagecage.version import VERSION

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions


_INDENT = 2
_NAME_COLUMNS = 24
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
        """Print the verbs or the options of one group."""
        title = "Options" if panel.format == "parameter" else str(panel.title)
        width = _width(console)
        for heading, is_positional in (("Arguments", True), (title, False)):
            entries = (e for e in panel.entries if bool(e.positional_label) is is_positional)
            if lines := [line for entry in entries for line in _entry_lines(entry, width)]:
                _print(console, ["", f"{heading}:", *lines])

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:  # noqa: ARG002
        """Print the usage line."""
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
    """Return the lines of one verb or option; a long name has a line of its own."""
    shorts, names = (
        [*entry.positive_shorts, *entry.negative_shorts],
        [*entry.positive_names, *entry.negative_names],
    )
    written = ", ".join([*shorts, *names]) + (f" {entry.metavar}" if entry.metavar else "")
    name = " " * _INDENT + (entry.positional_label or written)
    notes = [f"one of: {', '.join(entry.choices)}"] if entry.choices else []
    notes += [f"default: {entry.default}"] if entry.default is not None else []
    text = _plain(entry.description).removesuffix(".")
    text = f"{text} ({'; '.join(notes)})".strip() if notes else text
    columns = width - _NAME_COLUMNS
    lines = textwrap.wrap(text, columns, break_on_hyphens=False, break_long_words=False) or [""]
    first = [name] if len(name) + _INDENT > _NAME_COLUMNS else []
    heads = [""] * len(lines) if first else [name, *[""] * (len(lines) - 1)]
    rows = (f"{head:{_NAME_COLUMNS}}{line}" for head, line in zip(heads, lines, strict=True))
    return first + [row.rstrip() for row in rows if row.strip()]


_EPILOGUE = """Examples:

  pagecage list
  pagecage run constrained-random
  pagecage run constrained-random --resume
  pagecage show constrained-random --json
  pagecage replay customer --cold index.db -- ./server --load-index
  pagecage compare RUN OTHER --fail-if 'read_seconds > +10%'
  pagecage publish

Exit status:

  0    success
  1    internal error in pagecage
  2    invalid command line, file or definition
  3    the host cannot run the trials
  4    some trials have no result
  5    a --fail-if condition is met, or nothing reaches the target of --under
  6    a --fail-if condition or a target cannot be decided
  130  interrupted

`pagecage VERB --help` describes one verb."""
_OPTIONS = Group("Options")
app = App(
    name="pagecage",
    version=VERSION,
    help_epilogue=_EPILOGUE,
    help_format="plaintext",
    help_formatter=HelpPage(),
    help="Measure what I/O and memory limits cost a program that reads from disk.",
    default_parameter=Parameter(
        negative=(), show_default=shown_default, json_list=False, json_dict=False
    ),
    group_arguments=_OPTIONS,
    group_parameters=_OPTIONS,
    suppress_keyboard_interrupt=False,
)
_VERBS = {
    "Experiments": {
        "init": "init:app",
        "list": "run:list_experiments",
        "plan": "run:plan",
        "run": "run:run",
    },
    "Your own programs": {
        "replay": "replay:app",
        "sweep": "sweep:app",
        "memory": "memory:app",
        "shell": "shell:app",
        "cold": "cold:app",
    },
    "Results": {
        "show": "show:show",
        "compare": "show:compare",
        "baseline": "show:app",
        "history": "show:history",
        "predict": "predict:predict",
        "claims": "show:claims",
        "answers": "show:answers",
        "fidelity": "show:fidelity",
        "publish": "show:publish",
        "bundle": "bundle:bundle",
        "render": "bundle:render",
    },
    "Hosts and limits": {
        "doctor": "doctor:doctor",
        "host": "host:app",
        "cage": "cage:app",
        "floor": "floor:floor",
        "volume": "volume:app",
        "probe": "probe:probe",
        "verify": "verify:verify",
        "schema": "schema:schema",
    },
}
for _title, _verbs in _VERBS.items():
    _group = Group.create_ordered(_title)
    for _number, (_verb, _function) in enumerate(_verbs.items()):
        # An App has its own examples.
        _more = {} if _function.endswith(":app") else {"help_epilogue": examples(_verb)}
        app.command(
            f"pagecage.cli.{_function}", name=_verb, group=_group, sort_key=_number, **_more
        )
app.register_install_completion_command()
_GENERAL = Group.create_ordered("Options")
for _flag, _help in {
    "--help": "Show this help",
    "--version": "Show the version",
    "--install-completion": "Install completion of verbs and options for your shell",
}.items():
    app[_flag].help, app[_flag].group = _help, _GENERAL


def main() -> int:
    """Run the command line and return its exit status."""
    verbs = [verb for group in _VERBS.values() for verb in group]
    if not set(sys.argv[1:]) & set(verbs):
        for verb in verbs:  # the overview and the completion script describe every verb
            app[verb]
    # File names may be invalid UTF-8, and locales may lack characters.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # SIGTERM and SIGHUP clean up like Ctrl-C. Programs started by a shell's `&` and by cron
    # ignore SIGINT.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        return _call_verb()
    except BrokenPipeError:
        status = EXIT_FAILED
    except OSError:  # not even the message could be printed
        status = EXIT_HOST
    failures.give_up_output()
    return status


def _call_verb() -> int:
    try:
        status = app(
            sys.argv[1:], exit_on_error=False, print_error=False, result_action="return_value"
        )
        sys.stdout.flush()
        return int(status or EXIT_OK)
    except PagecageError as error:
        return failures.report(error)
    except CycloptsError as error:
        return failures.report(failures.command_line_error(error))
    except KeyboardInterrupt:
        notify("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - any other exception is a defect of pagecage
        if refused := refusal_of_system(error):
            return failures.report(refused)
        return failures.report_defect(error)


if __name__ == "__main__":
    sys.exit(main())
