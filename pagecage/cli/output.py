"""Output of commands: standard streams, data and notices."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from pagecage.errors import PagecageError, exclusive
from pagecage.terminal import read_input

if TYPE_CHECKING:
    from pagecage.process import Process


Listener = Callable[[Mapping[str, Any]], None]
_STDERR = 2


class StdioRelay:
    """A campaign's listener that handles output and input, and passes other events on."""

    def __init__(self, listener: Listener, stdout: int) -> None:
        self._listener, self._outputs = listener, {"stdout": stdout, "stderr": _STDERR}

    def __call__(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "output":
                descriptor, piece = self._outputs[event["stream"]], event["piece"]
                with suppress(BrokenPipeError):  # `| head` has ended; the trial goes on
                    while piece:
                        piece = piece[os.write(descriptor, piece) :]
            case "input_wanted":  # in a thread, because reading from a terminal may block
                answer, offset = event["answer"], event["offset"]
                threading.Thread(target=lambda: answer(read_input(offset)), daemon=True).start()
            case _:
                self._listener(event)


Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON on standard output")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OutputFormat:
    """The output format; the terminal's unless one of these options is given.

    Parameters
    ----------
    csv
        Print the main table as CSV
    markdown
        Print the tables as Markdown
    as_json
        Print JSON on standard output
    """

    csv: bool = False
    markdown: bool = False
    as_json: Annotated[bool, Parameter(name="--json")] = False

    def given(self) -> dict[str, bool]:
        return {"csv": self.csv, "markdown": self.markdown, "json": self.as_json}

    def form(self) -> str:
        """Return csv, markdown, json, or "". Raises PagecageError if two are given."""
        given = [name for name, is_given in self.given().items() if is_given]
        if len(given) > 1:
            raise exclusive(f"--{given[0]}", f"--{given[1]}")
        return given[0] if given else ""


def typed_command() -> str:
    """Return the command line as the user typed it, quoted for a shell."""
    return shlex.join(["pagecage", *sys.argv[1:]])


def require_before_command(given: str | None, name: str, command: Sequence[str]) -> None:
    """Raise PagecageError if an argument was taken from the words of the command after `--`."""
    after = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    if given is not None and after[:1] == [given] and len(after) == len(command) + 1:
        verb = f"pagecage {sys.argv[1]}"
        raise PagecageError(f"{verb} requires {name} before --", f"{verb} --help")


@cache
def _examples() -> dict[str, str]:
    text = Path(__file__).with_name("examples.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^\[(.+)\]\n((?:[^\[].*\n)+)", text, re.MULTILINE))


def examples(verb: str, more: str = "") -> str:
    """Return the text below a verb's options: its examples, then `more`."""
    shown = textwrap.indent(_examples()[verb].rstrip(), "  ")
    return f"Examples:\n\n{shown}" + (f"\n\n{more}" if more else "")


@contextmanager
def forwarded(process: Process[bytes]) -> Iterator[None]:
    """Pass signals on to a program, which Ctrl-C reaches from the terminal."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, lambda *_: None)
    for number in numbers[1:]:
        signal.signal(number, lambda number, _: process.send_signal(number))
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def shown(path: Path) -> str:
    """Return a path below the working directory as relative to it, and any other unchanged."""
    try:
        here = Path.cwd()
    except OSError:
        return str(path)
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn an OSError from writing to `target`, which the user named, into a PagecageError."""
    try:
        yield
    except OSError as error:
        above = shlex.quote(str(target.parent))
        raise PagecageError(
            f"{target} cannot be written: {error.strerror or error}", f"ls -ld {above}"
        ) from None
