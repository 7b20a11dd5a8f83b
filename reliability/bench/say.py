"""Progress on standard error, one line per step."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
