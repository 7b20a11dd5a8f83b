"""Progress goes to standard error, a line a step."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """One line."""
    sys.stderr.write(f"{text}\n")
