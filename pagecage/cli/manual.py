"""The manual page and the completions of shells, made from the command line itself.

`python -m pagecage.cli.manual FOLDER` writes them as they are installed below /usr.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from cyclopts import App
from rich.console import Console

from pagecage.cli.main import app, load_verbs, overview
from pagecage.errors import EXIT_CODES, RUNNER_EXIT_CODES, RUNNERS
from pagecage.version import VERSION

_COLUMNS = 76
_COMPLETIONS: dict[str, Literal["bash", "zsh", "fish"]] = {
    "share/bash-completion/completions/pagecage": "bash",
    "share/zsh/site-functions/_pagecage": "zsh",
    "share/fish/vendor_completions.d/pagecage.fish": "fish",
}


def verbs(of: App = app, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield each verb by its words ("host", "up"). A verb precedes its nested verbs."""
    for name in of:
        if not name.startswith("-"):
            yield (*before, name)
            yield from verbs(of[name], (*before, name))


def manual() -> str:
    """Return the manual page in the language of man(7)."""
    codes = {**EXIT_CODES, **RUNNER_EXIT_CODES}
    lines = [
        f'.TH PAGECAGE 1 "" "pagecage {VERSION}" "User Commands"',
        *(".SH NAME", r"pagecage \- measure what I/O and memory limits cost a program"),
        *(".SH SYNOPSIS", r"\fBpagecage\fR \fIVERB\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]"),
        *(".SH DESCRIPTION", *_literal(overview(_COLUMNS))),
        ".SH VERBS",
    ]
    for words in verbs():
        lines += [f".SS pagecage {' '.join(words)}", *_literal(_printed(words).strip("\n"))]
    lines.append(".SH EXIT STATUS")
    for code in sorted(codes):
        lines += [".TP", str(code), codes[code]]
    lines += [".PP", f"{', '.join(RUNNERS)} pass on the program's status."]
    return "\n".join(lines) + "\n"


def _printed(words: tuple[str, ...]) -> str:
    text = io.StringIO()
    app.help_print(list(words), console=Console(file=text, width=_COLUMNS))
    return text.getvalue()


def _literal(text: str) -> Iterator[str]:
    """Yield a text that man(1) shows as it is."""
    yield ".nf"
    for line in text.splitlines():
        escaped = line.rstrip().replace("\\", r"\e").replace("-", r"\-")
        yield rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
    yield ".fi"


def files() -> dict[str, str]:
    """Return the manual page and the completions by their paths below /usr."""
    load_verbs()
    found = {"share/man/man1/pagecage.1": manual()}
    for path, shell in _COMPLETIONS.items():
        found[path] = app.generate_completion(prog_name="pagecage", shell=shell)
    return found


def main(folder: Path) -> None:
    for path, text in files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
