"""Layout of `--help` pages, in two columns as those of systemctl(1) and psql(1)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagecage.checkout import OWN, TOP

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

_INDENT = 2
_NAME_COLUMNS = 24
_MOST_COLUMNS = 100


def shown_default(value: object) -> object | None:
    """Return the default value for the help. None for a flag, an empty list, and no default."""
    if value is False or value == () or value is None:
        return None
    if isinstance(value, float):
        return f"{value:g}"
    for top in (OWN, TOP):
        if isinstance(value, Path) and value.is_relative_to(top):
            return value.relative_to(top)
    return value


class HelpPage:
    """A help formatter for cyclopts."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:  # noqa: ARG002
        """Print the verbs or the options of one group."""
        arguments = [entry for entry in panel.entries if entry.positional_label]
        self._print_entries(console, "Arguments", arguments)
        others = [entry for entry in panel.entries if not entry.positional_label]
        title = "Options" if panel.format == "parameter" else str(panel.title)
        self._print_entries(console, title, others)

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:  # noqa: ARG002
        """Print the usage line."""
        _print(console, [f"Usage: {_plain(usage).removeprefix('Usage: ')}"])

    def render_description(
        self,
        console: Console,
        options: ConsoleOptions,  # noqa: ARG002
        description: Any,
    ) -> None:
        """Print the paragraphs below the usage line, each filled to the width of the terminal."""
        for paragraph in _plain(description).split("\n\n"):
            _print(console, ["", *textwrap.wrap(paragraph, _width(console))])

    def _print_entries(self, console: Console, title: str, entries: Iterable[HelpEntry]) -> None:
        lines = [line for entry in entries for line in _entry_lines(entry, _width(console))]
        if lines:
            _print(console, ["", f"{title}:", *lines])


def _width(console: Console) -> int:
    return min(console.width, _MOST_COLUMNS)


def _print(console: Console, lines: Iterable[str]) -> None:
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _plain(text: Any) -> str:
    return str(getattr(text, "primary_renderable", text) or "").strip()


def _entry_lines(entry: HelpEntry, width: int) -> list[str]:
    """Return the lines of one verb or option; a long name has a line of its own."""
    name = " " * _INDENT + _name(entry)
    lines = textwrap.wrap(
        _description(entry), width - _NAME_COLUMNS, break_on_hyphens=False, break_long_words=False
    ) or [""]
    if len(name) + _INDENT > _NAME_COLUMNS:
        return [name, *(f"{'':{_NAME_COLUMNS}}{line}".rstrip() for line in lines if line)]
    return [
        f"{name if number == 0 else '':{_NAME_COLUMNS}}{line}".rstrip()
        for number, line in enumerate(lines)
    ]


def _name(entry: HelpEntry) -> str:
    if entry.positional_label:
        return entry.positional_label
    shorts, names = (
        [*entry.positive_shorts, *entry.negative_shorts],
        [*entry.positive_names, *entry.negative_names],
    )
    return ", ".join([*shorts, *names]) + (f" {entry.metavar}" if entry.metavar else "")


def _description(entry: HelpEntry) -> str:
    """Return the text, then the values that can be given and the one that is taken otherwise."""
    notes = [f"one of: {', '.join(entry.choices)}"] if entry.choices else []
    notes += [f"default: {entry.default}"] if entry.default is not None else []
    text = _plain(entry.description).removesuffix(".")
    return f"{text} ({'; '.join(notes)})".strip() if notes else text
