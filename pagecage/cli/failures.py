"""Failures as one sentence, and the command that fixes them."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from difflib import SequenceMatcher

from cyclopts import CycloptsError, MissingArgumentError, UnknownCommandError, UnusedCliTokensError

from pagecage.checkout import IS_INSTALLED, LOGS
from pagecage.errors import EXIT_FAILED, PagecageError, nearest
from pagecage.terminal import complain

_WITHOUT_MAKE = (
    (r"make setup HOST=(\w+)", r"pagecage host setup \1"),
    (r"make setup", "pagecage host setup"),
    (r"make build", "install pagecage again, from a wheel"),
    (r"make provision HOST=", "pagecage host provision "),
    (r"make provision", "pagecage host provision"),
    (r"make experiment NAME=(\S+)", r"pagecage run \1"),
    (r"make publish", "install pagecage[site]"),
    (r"ASK=1 \((--ask-password)\)", r"\1"),
)
"""Patterns of fixes with make, and what replaces them in an installed package."""


def fix_here(fix: str, *, is_installed: bool = IS_INSTALLED) -> str:
    if is_installed:
        for pattern, replacement in _WITHOUT_MAKE:
            fix = re.sub(pattern, replacement, fix)
    return fix


LOG = LOGS / "defect.log"
SHOW = "PAGECAGE_TRACEBACK"
"""Environment variable: print the traceback of a defect on standard error."""
# Endings that cyclopts (exceptions.py) appends to the first sentence of its messages.
_SUGGESTION = re.compile(r" Did you mean (.+)\?$", re.DOTALL)
_CHOICES = re.compile(r"\. (Choose from: .+)\.$")
_LEAST_SIMILARITY = 0.6
_BOUND = re.compile(r"\. M(ust be .+?)\.?$")


def report(error: PagecageError) -> int:
    """Print the message and the fix, one line each; return the exit status."""
    lines = [
        f"pagecage: {printable(error.message)}",
        *([f"  fix: {printable(fix_here(error.hint))}"] if error.hint else []),
    ]
    complain("\n".join(lines))
    return error.exit_code


def printable(text: str) -> str:
    """Return the text as one line that a terminal shows literally."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def command_line_error(error: CycloptsError, renamed: Mapping[str, str]) -> PagecageError:
    """Return an error of the command line as a PagecageError.

    `renamed` has the command that replaces a verb of an earlier version.
    """
    chain = ["pagecage", *(error.command_chain or ())]
    hint = f"{' '.join(chain)} --help"
    match error:
        case UnknownCommandError(unused_tokens=[word, *_]) if new := renamed.get(
            " ".join([*chain[1:], word])
        ):
            return PagecageError(
                f"{' '.join(chain)} {word} has a new name: pagecage {new}",
                f"pagecage help {new.partition(' ')[0]}",
            )
        case UnknownCommandError(unused_tokens=[word, *_], app=app) if app:
            verbs = [name for name in app if not name.startswith("-")]
            message = f"{' '.join(chain)} has no verb {word!r}"
            return PagecageError(message, nearest(word, verbs, hint))
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            return PagecageError(f"{' '.join(chain)} takes no argument {word!r}", hint)
        case MissingArgumentError(argument=argument) if (
            argument and not argument.tokens and not error.keyword
        ):
            name = (
                argument.name.removeprefix("--").upper()
                if argument.field_info.is_positional
                else argument.name
            )
            return PagecageError(f"{' '.join(chain)} requires {name}", hint)
    message = str(error).strip()
    if close := _SUGGESTION.search(message):
        message = message[: close.start()]
        is_close = not message.startswith("Unknown option") or _is_similar(message, close[1])
        hint = f"did you mean {close[1]}?" if is_close else hint
    if choices := _CHOICES.search(message):
        message = message[: choices.start()]
        hint = hint if close else choices[1][0].lower() + choices[1][1:]
    return PagecageError(_BOUND.sub(r": m\1", message).removesuffix("."), hint)


def _is_similar(message: str, suggestion: str) -> bool:
    """Return whether the option at the end of a message resembles the one that cyclopts offers."""
    words = message.rstrip('".').split()[-1].strip('"-'), suggestion.strip('"-')
    return SequenceMatcher(None, *words).ratio() >= _LEAST_SIMILARITY


def give_up_output() -> None:
    """Discard what could not be written, so that Python does not fail with it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


def report_defect(error: Exception) -> int:
    """Report a defect of pagecage and write its traceback to LOG; return the exit status."""
    text = "".join(traceback.format_exception(error))
    message = printable(f"pagecage: internal error: {text.strip().splitlines()[-1]}")
    how = "the traceback above"
    with suppress(OSError):
        if not os.environ.get(SHOW):
            LOG.parent.mkdir(parents=True, exist_ok=True)
            LOG.write_text(text, errors="backslashreplace")
            text, how = "", f"{LOG} ({SHOW}=1 prints the traceback)"
    complain(f"{text}{message}\n  fix: report this defect with {how}")
    return EXIT_FAILED
