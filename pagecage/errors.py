"""Errors for users, each with the command or edit that fixes it, and exit codes."""

from __future__ import annotations

import difflib
import errno
import json
import os
import re
import shlex

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_HOST = 3
EXIT_INCOMPLETE = 4
EXIT_GATE_FAILED = 5
EXIT_GATE_UNDECIDED = 6
EXIT_OWN_FAILURE = 125
EXIT_NOT_STARTED = 126
EXIT_NOT_FOUND = 127
EXIT_INTERRUPTED = 130
EXIT_CODES = {
    EXIT_OK: "success",
    EXIT_FAILED: "internal error in pagecage",
    EXIT_USAGE: "invalid command line, file or definition",
    EXIT_HOST: "the host cannot run the trials",
    EXIT_INCOMPLETE: "some trials have no result",
    EXIT_GATE_FAILED: "a condition of --fail-if is met, a target is missed, or a limit was lost",
    EXIT_GATE_UNDECIDED: "a condition of --fail-if or a target cannot be decided",
    EXIT_INTERRUPTED: "interrupted",
}
"""Exit codes of every verb that does not pass on a program's status (docs/EXIT_CODES.md)."""
RUNNER_EXIT_CODES = {
    EXIT_OWN_FAILURE: "pagecage failed: any of 1 to 4 above, or files did not become cold",
    EXIT_NOT_STARTED: "the program cannot be started",
    EXIT_NOT_FOUND: "there is no such program",
}
"""Exit codes of verbs that pass on a program's status, as docker run has them."""
RUNNERS = ("replay", "sweep", "memory", "cold", "shell")
"""Verbs that pass on a program's status."""


def runner_code(code: int) -> int:
    """Return the exit code of a verb that passes on a program's status, for one of pagecage's."""
    return EXIT_OWN_FAILURE if EXIT_OK < code <= EXIT_INCOMPLETE else code


class PagecageError(Exception):
    """An error for the user: one sentence, and the command or edit that fixes it.

    `exit_code` is EXIT_USAGE for invalid input, EXIT_HOST for a host that cannot do what was
    requested.
    """

    def __init__(self, message: str, hint: str = "", exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.hint}" if self.hint else self.message


class HostError(PagecageError):
    """The host cannot run trials: a tool is missing, it does not boot, or it is in use."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, EXIT_HOST)


class HostDied(HostError):
    """The host ended during work, or the connection broke. A new start may continue."""


NO_THREAD = "can't start new thread"
"""Python's message (RuntimeError) when the system refuses a thread."""
_NO_TMPDIR = "No usable temporary directory found"
"""tempfile's message when no folder can be written, as on a full disk."""
UNREADABLE = (
    *(OSError, ValueError, OverflowError),
    *(KeyError, TypeError, AttributeError, RecursionError),
)
"""Exceptions raised while an untrusted or damaged file is read and parsed."""
_NO_NUMBER = re.compile(r"(?:invalid literal for int\(\)[^:]*|could not convert string to float): ")


_REFUSALS = {
    errno.ENOSPC: "free space on that disk, then repeat the command",
    errno.EDQUOT: "free space in that quota, then repeat the command",
    errno.EIO: "read the kernel's messages: dmesg",
    errno.EAGAIN: "end other processes, or raise the limit: ulimit -u",
    errno.ENOMEM: "end other processes, then repeat the command",
    errno.EMFILE: "raise the limit: ulimit -n",
    errno.ENFILE: "raise the limit: sysctl fs.file-max",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "check who may write there: ls -ld"),
    **dict.fromkeys((errno.ECONNREFUSED, errno.ECONNRESET), "repeat the command"),
}
"""Refusals of the operating system that may occur at any time, each with a remedy."""


def refusal_of_system(error: Exception) -> HostError | None:
    """Return what the operating system refused as an error for the user; None for a defect."""
    if isinstance(error, RuntimeError) and str(error) == NO_THREAD:
        return HostError("no further thread can be started", _REFUSALS[errno.EAGAIN])
    if isinstance(error, FileNotFoundError) and _NO_TMPDIR in str(error):
        return HostError(f"no folder for temporary files: {error.strerror}", "set TMPDIR")
    if not isinstance(error, OSError) or error.errno not in _REFUSALS:
        return None
    where = f"{error.filename}: " if error.filename else ""
    return HostError(f"{where}{error.strerror}", _REFUSALS[error.errno])


def why_unreadable(error: Exception) -> str:
    """Return why a file could not be read, in words about the file instead of Python's code."""
    if isinstance(error, OSError):
        return error.strerror or "it cannot be read"
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}: {error.msg}"
    if isinstance(error, KeyError):
        return f"it lacks {error.args[0]!r}"
    if isinstance(error, ValueError) and not isinstance(error, UnicodeDecodeError):
        message = str(error).partition(";")[0]
        return (
            _NO_NUMBER.sub("", message) + " is not a number"
            if _NO_NUMBER.search(message)
            else message
        )
    in_words: dict[type[Exception], str] = {
        RecursionError: "it is nested too deeply",
        OverflowError: "a number is too large",
        UnicodeDecodeError: "it is not text",
    }
    return in_words.get(type(error), "a value has the wrong type")


_MOST_LISTED = 12


def nearest(name: str, names: list[str], listing: str = "") -> str:
    """Return a hint with the most similar name, or with all names.

    If these are many, it is the command `listing`, which lists them.
    """
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if not close and listing and len(names) > _MOST_LISTED:
        return listing
    return f'did you mean "{close[0]}"?' if close else f"known: {', '.join(names)}"


def exclusive(*options: str) -> PagecageError:
    return PagecageError(f"{' and '.join(options)} are mutually exclusive", "give one of them")


def no_program(name: str) -> PagecageError:
    """Return the error for a program that is missing, or that is not executable."""
    if name.startswith("-"):
        return PagecageError(f"there is no option {name!r}", "put -- before the command")
    if name and "\0" not in name and os.path.isfile(name):  # noqa: PTH113 - a name may be too long
        hint = f"chmod +x {shlex.quote(name)}"
        return PagecageError(f"{name!r} is not executable", hint, EXIT_NOT_STARTED)
    return PagecageError(f"there is no program {name!r}", "check its name and PATH", EXIT_NOT_FOUND)
