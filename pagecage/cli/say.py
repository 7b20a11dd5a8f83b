"""What goes to the user and is no data: standard error, as it stands."""

from __future__ import annotations

from rich.console import Console

_console = Console(stderr=True, highlight=False, emoji=False)


def say(text: str) -> None:
    """Print a sentence on standard error, not wrapped."""
    _console.print(text, soft_wrap=True, markup=False)


def say_step(text: str) -> None:
    """The same of a step that begins and takes a while."""
    say(f"{text} ...")
