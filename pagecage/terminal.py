"""The user's terminal: headings of the help, messages, questions, and standard input."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from cyclopts import Group

if TYPE_CHECKING:
    from rich.console import Console

_STDIN = 0
_PIECE_BYTES = 1 << 16


def input_is_file() -> bool:
    """Return whether standard input is a file, which every trial can read from its beginning."""
    try:
        return stat.S_ISREG(os.fstat(_STDIN).st_mode)
    except OSError:
        return False


def read_input(offset: int) -> bytes:
    """Return the next piece of standard input; of a file, the piece at `offset`."""
    with suppress(OSError):
        if input_is_file():
            return os.pread(_STDIN, _PIECE_BYTES, offset)
        return os.read(_STDIN, _PIECE_BYTES)
    return b""


ARGUMENTS, COMMON = Group.create_ordered("Arguments"), Group.create_ordered("Options")
"""The first headings of the help; cyclopts sorts headings as they were created."""
Notify = Callable[[str], None]
"""Prints a message to the user."""
_verbosity = 0


def set_verbosity(level: int) -> None:
    """Set how much is printed: -1 with -q, 1 with -v, else 0."""
    global _verbosity
    _verbosity = level


def is_quiet() -> bool:
    return _verbosity < 0


def is_verbose() -> bool:
    return _verbosity > 0


def notify(text: str) -> None:
    """Print a message on standard error, not wrapped; nothing with -q."""
    if not is_quiet():
        complain(text)


def complain(text: str) -> None:
    _console().print(text, soft_wrap=True, markup=False)


@cache
def _console() -> Console:
    from rich.console import Console  # imported late: most commands print no message

    return Console(stderr=True, highlight=False, emoji=False)


def notify_step(text: str) -> None:
    notify(f"{text} ...")


def confirmed(question: str) -> bool:
    """Ask a question on standard error and return whether the user answers `y`."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() == "y"
