"""The end of a command that fails: a user's mistake in a sentence, a defect of pagecage with its traceback."""

from __future__ import annotations

import os
import re
import traceback

from cyclopts import CycloptsError, MissingArgumentError, UnknownCommandError, UnusedCliTokensError

from pagecage.checkout import TOP
from pagecage.cli.output import say
from pagecage.errors import EXIT_FAILED, PagecageError, nearest

LOG = TOP / "build/log/defect.log"
SHOW = "PAGECAGE_TRACEBACK"
"""Environment variable: print the traceback of a defect on standard error."""
# Where cyclopts (exceptions.py) goes on after its first sentence.
_SUGGESTION = re.compile(r" Did you mean (.+)\?$", re.DOTALL)
_CHOICES = re.compile(r"\. (Choose from: .+)\.$")
_BOUND = re.compile(r"\. M(ust be .+?)\.?$")


class Defect(Exception):
    """A defect of a part of pagecage that runs as a program of its own; `told` is the traceback that it printed."""

    def __init__(self, message: str, told: str) -> None:
        super().__init__(message)
        self.told = told


def tell(error: PagecageError) -> int:
    """Print the sentence and the hint, one line each; return the exit status."""
    lines = [f"pagecage: {printable(error.message)}", *([f"  fix: {printable(error.hint)}"] if error.hint else [])]
    say("\n".join(lines))
    return error.exit_code


def printable(text: str) -> str:
    """Return the text in one line that a terminal shows as it is: what a user typed or a file holds may be anything."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def refusal(error: CycloptsError) -> PagecageError:
    """Return the error in a command line as a PagecageError."""
    chain = ["pagecage", *(error.command_chain or ())]
    hint = f"{' '.join(chain)} --help"
    match error:
        case UnknownCommandError(unused_tokens=[word, *_], app=app) if app:
            verbs = [name for name in app if not name.startswith("-")]
            return PagecageError(f"{' '.join(chain)} has no verb {word!r}", nearest(word, verbs))
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            return PagecageError(f"{' '.join(chain)} has no use for {word!r}", hint)
        case MissingArgumentError(argument=argument) if argument and not argument.tokens and not error.keyword:
            name = argument.name.removeprefix("--").upper() if argument.field_info.is_positional else argument.name
            return PagecageError(f"{' '.join(chain)} lacks {name}", hint)
    return _in_our_words(str(error).strip(), hint)


def _in_our_words(said: str, hint: str) -> PagecageError:
    """Return the message of cyclopts as one sentence, with its suggestion as the hint."""
    if close := _SUGGESTION.search(said):
        said, hint = said[: close.start()], f"did you mean {close[1]}?"
    if choices := _CHOICES.search(said):
        said, hint = said[: choices.start()], hint if close else choices[1][0].lower() + choices[1][1:]
    return PagecageError(_BOUND.sub(r": m\1", said).removesuffix("."), hint)


def tell_defect(error: Exception) -> int:
    """Report a defect of pagecage and keep its traceback; return the exit status.

    It is no way to tell of a user's mistake: that is a PagecageError, raised where it is known what was mistaken.
    """
    told = error.told if isinstance(error, Defect) else "".join(traceback.format_exception(error))
    what = f"pagecage: a defect of pagecage itself, not of what you typed: {told.strip().splitlines()[-1]}"
    if os.environ.get(SHOW) or not _keep(told):
        say(f"{told}{printable(what)}\n  fix: report it with the traceback above")
    else:
        say(f"{printable(what)}\n  fix: report it with {LOG}, which has the traceback ({SHOW}=1 prints it)")
    return EXIT_FAILED


def _keep(told: str) -> bool:
    try:
        LOG.parent.mkdir(parents=True, exist_ok=True)
        LOG.write_text(told, errors="backslashreplace")
    except OSError:
        return False
    return True
