"""What goes to the user and is no data: standard error, as it stands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

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
