"""In which form a verb prints its tables."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pagecage.errors import PagecageError

Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print data, and data alone, on standard output.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OutputFormat:
    """For the terminal unless one of these is asked for.

    Parameters
    ----------
    csv
        Print the table as CSV.
    markdown
        Print the tables in Markdown.
    as_json
        Print data, and data alone, on standard output.
    """

    csv: bool = False
    markdown: bool = False
    as_json: Annotated[bool, Parameter(name="--json")] = False

    def options(self) -> list[str]:
        """What the analysis is told. Raises PagecageError where two forms are asked for."""
        forms = (("--csv", self.csv), ("--markdown", self.markdown), ("--json", self.as_json))
        asked = [name for name, is_asked in forms if is_asked]
        if len(asked) > 1:
            raise PagecageError(f"{asked[0]} and {asked[1]} are two forms", "ask for one")
        return asked


Say = Callable[[str], None]
"""Prints a sentence to the user."""

if TYPE_CHECKING:
    from rich.console import Console


def say(text: str) -> None:
    """Print a sentence on standard error, not wrapped."""
    _console().print(text, soft_wrap=True, markup=False)


@cache
def _console() -> Console:
    from rich.console import Console  # not at the start: most commands have nothing to say

    return Console(stderr=True, highlight=False, emoji=False)


def say_step(text: str) -> None:
    """The same of a step that begins and takes a while."""
    say(f"{text} ...")


def typed_command() -> str:
    """Return the command line as it was typed, quoted for a shell."""
    return shlex.join(["pagecage", *sys.argv[1:]])
