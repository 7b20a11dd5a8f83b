"""A command given as one text: a program with arguments, or a command of a shell in the cage."""

from __future__ import annotations

import re
import shlex

from pagecage.errors import PagecageError

_QUOTED = re.compile(r"'[^']*'|\\.|\"((?:\\.|[^\"\\])*)\"", re.DOTALL)
_SHELL = re.compile(r"[|&;<>()$`*?\[\n]|(?<!\S)[~#]|\A\s*!\s|\A\s*[A-Za-z_]\w*=")
"""Operators, expansions, globs, comments and assignments (POSIX, Shell Command Language)."""
_IN_QUOTES = re.compile(r"[$`]")
"""Signs that a shell expands or unescapes between double quotes too."""


def command_words(text: str) -> tuple[tuple[str, ...], str]:
    """Return the words to run, and a sentence that states how the text was understood.

    Nothing is expanded here. A text with signs of a shell becomes `sh -c` of the whole text. Raises
    PagecageError for an empty text and for a quotation mark without its other.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        reason = str(error).lower()
        raise PagecageError(f"--command: {text!r} is incomplete: {reason}", "quote it") from None
    if "\0" in text or not words or not words[0]:
        raise PagecageError(f"--command: {text!r} has no program", "--command 'wc -l FILE'")
    if needs_shell(text):
        words = ("sh", "-c", text)
        return words, f"in the cage, by a shell: {shlex.join(words)}"
    return words, f"in the cage, a program with arguments: {shlex.join(words)}"


def needs_shell(text: str) -> bool:
    """Return whether a shell would do more with the text than split it into words."""
    quoted = [match[1] for match in _QUOTED.finditer(text) if match[1]]
    if "\\\n" in text or any(_IN_QUOTES.search(part) for part in quoted):
        return True
    return _SHELL.search(_QUOTED.sub("x", text)) is not None
