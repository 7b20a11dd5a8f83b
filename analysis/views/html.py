"""HTML that stands by itself: tables, figures with what they say, and what is folded away."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.style import style, svg
from pagecage.checkout import TOP
from pagecage.errors import PagecageError

_MARKED = {"✓": "good", "✗": "bad"}


@dataclass(frozen=True)
class Html:
    """HTML as a notebook cell's value."""

    text: str

    def _repr_html_(self) -> str:
        return self.text


def prose_html(text: str) -> str:
    """A sentence of a definition's, in which `code` stands between backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def headed(heading: str, made: Html | None, about: str = "") -> Html | None:
    """A part with its heading; nothing where there is nothing to head."""
    text = f"<p>{about}</p>" if about else ""
    return Html(f"<h3>{escape(heading)}</h3>{text}{made.text}") if made else None


def folded(about: str, frame: pd.DataFrame, kind: str = "", *, counted: bool = True) -> Html | None:
    """A table behind its summary; nothing for an empty one."""
    made = table_html(frame, kind)
    number = f" ({len(frame)})" if counted else ""
    return Html(f"<details><summary>{escape(about)}{number}</summary>{made.text}</details>") if made else None


def once(frame: pd.DataFrame, columns: int) -> pd.DataFrame:
    """Levels that repeat the row above are left out of the first columns, as one would by hand."""
    told = frame.copy()
    for place in range(max(0, columns)):
        above = frame.iloc[:, : place + 1].shift().eq(frame.iloc[:, : place + 1]).all(axis=1)
        told.iloc[:, place] = frame.iloc[:, place].mask(above, "")
    return told


def table_html(frame: pd.DataFrame, kind: str = "") -> Html | None:
    """A frame as a table of its own, in a box that scrolls where the page is too narrow; nothing for an empty one."""
    if frame.empty:
        return None
    text = frame.map(cell_html).to_html(
        classes=f"pagecage {kind}".strip(), border=0, index=False, escape=False, justify="left"
    )
    return Html(f'<div class="scroll">{text}</div>')


def cell_html(value: object) -> str:
    """A cell's first line, and below it in small what belongs to it; marks get their colour."""
    first, *rest = escape(str(value)).split("\n")
    kind = _MARKED.get(first[:1])
    text = f'<span class="{kind}">{first}</span>' if kind else first
    return text + "".join(f"<small{_LONG if len(line) > _LONG_LINE else ''}>{line}</small>" for line in rest)


_LONG_LINE = 60
"""A line below a figure that is longer is a sentence, which may break."""
_LONG = ' class="long"'


def figure_html(draw: Callable[[], Figure | None], says: Callable[[], str]) -> Html | None:
    """What is drawn, with what it says to those who cannot see it; nothing where nothing was drawn."""
    with style():
        figure = draw()
    return Html(svg_html(figure, says())) if figure else None


def svg_html(figure: Figure, says: str, caption: str = "") -> str:
    """A figure as SVG within the page, in a box that scrolls where the page is too narrow."""
    told = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure>{told}<div class="scroll">{svg(figure, escape(says))}</div></figure>'


_TEMPLATE = TOP / "analysis/templates/offline"
_SHEETS = ("page.css", "parts.css")


def write_page(content: str, target: Path) -> None:
    """Write a page aside, then move it to its name. Raises PagecageError where that is not possible."""
    aside = target.with_name(f".pagecage-page-{os.getpid()}")
    try:
        aside.write_text(content)
        aside.replace(target)
    except OSError as error:
        raise PagecageError(f"{target} cannot be written: {error.strerror}", "name another --html") from None
    finally:
        aside.unlink(missing_ok=True)


def html_page(title: str, parts: Iterable[str]) -> str:
    """A page that loads nothing, with our style."""
    sheets = "".join((_TEMPLATE / name).read_text() for name in _SHEETS)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(title)}</title>\n'
        f"<style>\n{sheets}</style>\n</head>\n<body>\n<main>\n{''.join(parts)}</main>\n</body>\n</html>\n"
    )


def html_table(names: Sequence[str], rows: Iterable[Sequence[str]], *, even: bool = False) -> str:
    """A table; the lines of a cell after its first stand in small below it. Columns of an `even` one are alike."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{cell_html(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    kind = "pagecage even" if even else "pagecage"
    whole = f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>'
    return f'<div class="scroll">{whole}</div>\n'
