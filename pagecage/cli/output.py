"""Output formats of the verbs, and messages to the user on standard error."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pagecage.errors import PagecageError

Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON on standard output")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OutputFormat:
    """The output format; the terminal's unless one of these options is given.

    Parameters
    ----------
    csv
        Print the main table as CSV
    markdown
        Print the tables as Markdown
    as_json
        Print JSON on standard output
    """

    csv: bool = False
    markdown: bool = False
    as_json: Annotated[bool, Parameter(name="--json")] = False

    def options(self) -> list[str]:
        """Return the option for `python -m analysis`, if any.

        Raises PagecageError if two are given.
        """
        formats = (("--csv", self.csv), ("--markdown", self.markdown), ("--json", self.as_json))
        given = [name for name, is_given in formats if is_given]
        if len(given) > 1:
            raise PagecageError(
                f"{given[0]} and {given[1]} are mutually exclusive", "give one of them"
            )
        return given


Notify = Callable[[str], None]
"""Prints a message to the user."""

if TYPE_CHECKING:
    from rich.console import Console


def notify(text: str) -> None:
    """Print a message on standard error, not wrapped."""
    _console().print(text, soft_wrap=True, markup=False)


@cache
def _console() -> Console:
    from rich.console import Console  # imported late: most commands print no message

    return Console(stderr=True, highlight=False, emoji=False)


def notify_step(text: str) -> None:
    """Print that a step begins which takes seconds."""
    notify(f"{text} ...")


def confirmed(question: str) -> bool:
    """Ask a question on standard error and return whether the user answers `y`."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() == "y"


def typed_command() -> str:
    """Return the command line as the user typed it, quoted for a shell."""
    return shlex.join(["pagecage", *sys.argv[1:]])
