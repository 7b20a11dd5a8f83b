"""What goes to the user and is no data: standard error, as it stands."""

from __future__ import annotations

from rich.console import Console

_console = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """Print a sentence on standard error, not wrapped."""
    _console.print(text, soft_wrap=True, markup=False)
