"""Self-contained HTML: tables, figures with alternative texts, and collapsible parts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.style import drawing_style, svg
from pagecage.errors import PagecageError
from pagecage.report.model import (
    BarChart,
    Block,
    Cell,
    Folded,
    Heading,
    Image,
    Paragraph,
    Report,
    Strip,
    Table,
    Tone,
)
from pagecage.whole_files import write_whole

_MARKED = {"✓": "good", "✗": "bad"}


@dataclass(frozen=True, repr=False)
class Html:
    """HTML as the value of a notebook cell."""

    text: str

    def __repr__(self) -> str:
        """Return a short text, because a notebook stores it beside the HTML."""
        return f"<HTML of {len(self.text):,} characters>"

    def _repr_html_(self) -> str:
        return self.text


def definition_text_html(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def folded(summary: str, part: str, introduction: str = "") -> str:
    """Return a part collapsed below its summary; nothing if there is no part."""
    about = f"<p>{introduction}</p>" if introduction else ""
    return f"<details><summary>{escape(summary)}</summary>{about}{part}</details>" if part else ""


def folded_table(summary: str, frame: pd.DataFrame, kind: str = "", *, counted: bool = True) -> str:
    number = f" ({len(frame)})" if counted else ""
    return folded(f"{summary}{number}", table_html(frame, kind, summary))


def table_html(frame: pd.DataFrame, kind: str = "", caption: str = "") -> str:
    """Return a frame as a scrollable table; nothing if it is empty.

    Its caption, which the page shows already, is only for screen readers.
    """
    if frame.empty:
        return ""

    def heading(name: object) -> object:
        return escape(name) if isinstance(name, str) else name

    # Levels of a definition are among the names of columns.
    cells = frame.map(_cell_html).rename(columns=heading).rename_axis(columns=heading)
    text = cells.to_html(
        classes=f"pagecage {kind}".strip(), border=0, index=False, escape=False, justify="left"
    )
    text = re.sub(r"<th(?= colspan|>)", '<th scope="col"', text)
    if "claims" not in kind:  # whose first column is the anchor of a link
        text = _FIRST_CELL.sub(r'\1<th scope="row">\2</th>', text)
    if caption:
        unseen = f'<caption class="unseen">{escape(caption)}</caption>'
        text = text.replace("<thead>", f"{unseen}<thead>", 1)
    return f'<div class="scroll">{text}</div>'


_FIRST_CELL = re.compile(r"(<tr>\s*)<td>(.*?)</td>", re.DOTALL)


def _cell_html(value: object) -> str:
    """Return a cell's first line, and further lines in small below it; marks are coloured."""
    first, *rest = escape(str(value)).split("\n")
    kind = _MARKED.get(first[:1])
    text = f'<span class="{kind}">{first}</span>' if kind else first
    return text + "".join(map(_small, rest))


_LONG_LINE = 60
"""A longer line below a figure is a sentence, which may wrap."""
_LONG = ' class="long"'


def figure_html(
    draw: Callable[..., Figure | None], alt_text: Callable[..., str], *data: Any
) -> str:
    """Return what `draw` draws of the data, if anything, with its alternative text."""
    with drawing_style():
        figure = draw(*data)
    return svg_html(figure, alt_text(*data)) if figure else ""


def svg_html(figure: Figure, alt_text: str, caption: str = "") -> str:
    figcaption = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure>{figcaption}<div class="scroll">{svg(figure, escape(alt_text))}</div></figure>'


PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
"""Content-Security-Policy of a page that is one file: no script runs in it, and nothing is loaded.
"""
SKIP_LINK = '<a class="skip" href="#main">Skip to the result</a>'
_TEMPLATE = Path(__file__).parents[1] / "templates/offline"
_SHEETS = ("page.css", "parts.css")


def write_page(report: Report, title: str, target: Path) -> None:
    try:
        write_whole(target, to_html(report, title))
    except OSError as error:
        message = f"{target} cannot be written: {error.strerror}"
        raise PagecageError(message, "name another --html") from None


def to_html(report: Report, page_title: str) -> str:
    body = f"<h1>{escape(report.title)}</h1>\n{blocks_html((*report.blocks, *report.rest))}"
    sheets = "".join((_TEMPLATE / name).read_text() for name in _SHEETS)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{PAGE_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(page_title)}</title>\n'
        f"<style>\n{sheets}</style>\n</head>\n<body>\n{SKIP_LINK}\n"
        f'<main id="main">\n{body}</main>\n</body>\n</html>\n'
    )


def blocks_html(blocks: Iterable[Block]) -> str:
    parts = []
    for is_list, group in itertools.groupby(
        blocks, lambda block: isinstance(block, Paragraph) and bool(block.marker)
    ):
        body = "".join(map(_block, group))
        parts.append(f"<ul>\n{body}</ul>\n" if is_list else body)
    return "".join(parts)


def _block(block: Block) -> str:
    match block:
        case Strip():
            return strip_html(block)
        case Heading(text):
            return f"<h2>{escape(text)}</h2>\n"
        case Paragraph():
            detail = f"<small>{definition_text_html(block.detail)}</small>" if block.detail else ""
            tag, kind = "li" if block.marker else "p", _CLASSES[block.tone]
            attribute = f' class="{kind}"' if kind else ""
            return f"<{tag}{attribute}>{definition_text_html(block.text)}{detail}</{tag}>\n"
        case Image(svg=draw):
            drawn = draw()
            return f'<figure><div class="scroll">{drawn}</div></figure>\n' if drawn else ""
        case Folded(summary, blocks):
            part = folded(summary, blocks_html(blocks))
            return f"{part}\n" if part else ""
    return block_table_html(block)


def block_table_html(table: Table, kind: str = "") -> str:
    if not table.rows:
        return ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    rows = "".join(
        f"<tr>{_cell(first, _ROW_HEAD)}{''.join(map(_cell, others))}</tr>\n"
        for first, *others in table.rows
    )
    has_shades = any(cell.shade is not None for row in table.rows for cell in row)
    words = "; ".join(filter(None, (table.caption, "dark is slow" if has_shades else "")))
    caption = f"<caption>{escape(words)}</caption>" if words else ""
    classes = f"pagecage {kind}".strip()
    whole = f'<table class="{classes}">{caption}<thead><tr>{head}</tr></thead>'
    notes = "".join(f'<p class="source">{escape(note)}</p>\n' for note in table.footnotes)
    return f'<div class="scroll">{whole}<tbody>\n{rows}</tbody></table></div>\n{notes}'


def strip_html(strip: Strip) -> str:
    kind = "result" if strip.is_proven else "result unproven"
    lines = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in strip.lines)
    bars = bars_html(strip.chart) if strip.chart else ""
    result = f'<p class="{kind}">{definition_text_html(strip.result)}</p>'
    return f'<div class="strip">{result}<dl>{lines}</dl>{bars}</div>\n'


def bars_html(chart: BarChart) -> str:
    """Return a chart as rows of text with bars, legible at any width."""
    scale = " (log scale)" if chart.is_logarithmic else ""
    rows = "".join(
        f'<div class="bar"><span>{escape(label)}</span><i><b style="width:{100 * length:.1f}%"></b>'
        f"</i><span>{escape(text)}</span></div>"
        for label, length, text in zip(chart.labels, chart.lengths(), chart.texts, strict=True)
    )
    head = f"<figcaption>{escape(chart.title)}{scale}</figcaption>"
    return f'<figure class="bars">{head}{rows}</figure>'


_CLASSES: dict[Tone, str] = {
    "plain": "",
    "strong": "question",
    "soft": "source",
    "good": "good",
    "bad": "bad",
    "warning": "notice warn",
}


_ROW_HEAD = 'th scope="row"'


def _cell(cell: Cell, tag: str = "td") -> str:
    kind = _CLASSES[cell.tone] if cell.shade is None else f"heat h{cell.shade}"
    text = f'<span class="{kind}">{escape(cell.text)}</span>' if kind else escape(cell.text)
    lines = escape(cell.detail).split("\n") if cell.detail else []
    return f"<{tag}>{text}{''.join(map(_small, lines))}</{tag.partition(' ')[0]}>"


def _small(line: str) -> str:
    return f"<small{_LONG if len(line) > _LONG_LINE else ''}>{line}</small>"
