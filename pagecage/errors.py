"""What goes wrong by a user's doing or a host's, said in one sentence with the command that fixes it."""

from __future__ import annotations

import difflib
import json
import re

# Exit codes of `pagecage` (docs/FORMAT.md lists them for users).
EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_HOST = 3
EXIT_INCOMPLETE = 4
EXIT_GATE_FAILED = 5
EXIT_GATE_UNDECIDED = 6
EXIT_INTERRUPTED = 130


class PagecageError(Exception):
    """A user-facing failure: a sentence, and the command or edit that fixes it.

    `exit_code` is what the command line ends with: EXIT_USAGE for input that can be corrected before anything starts,
    EXIT_HOST for a host that cannot do what is asked.
    """

    def __init__(self, message: str, hint: str = "", exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.hint}" if self.hint else self.message


class HostError(PagecageError):
    """The host cannot serve: a missing tool, a guest that does not boot, a lock that somebody holds."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, EXIT_HOST)


class HostDied(HostError):
    """The host went away while it was working (the guest ended, the connection broke); a new start may continue."""


UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Exceptions raised while a file of another origin, or a damaged one, is read and parsed."""
_NO_NUMBER = re.compile(r"(?:invalid literal for int\(\)[^:]*|could not convert string to float): ")


def why_unreadable(error: Exception) -> str:
    """Return why a file could not be read, in words about the file instead of Python's about its code."""
    match error:
        case OSError():
            return error.strerror or "it cannot be read"
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeDecodeError():
            return "it is not text"
        case json.JSONDecodeError():
            return f"no JSON in line {error.lineno}: {error.msg}"
        case KeyError():
            return f"it lacks {error.args[0]!r}"
        case ValueError():
            said = str(error).partition(";")[0]
            return _NO_NUMBER.sub("", said) + " is not a number" if _NO_NUMBER.search(said) else said
    return "a value in it is of another kind than it must be"


def nearest(name: str, known: list[str]) -> str:
    """A hint that names the most similar known name, or all of them."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"?' if close else f"known: {', '.join(known)}"
