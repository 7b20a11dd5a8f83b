"""HTML that stands by itself: tables, figures with what they say, and what is folded away."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from analysis.figures.style import COLOURS, MARKERS, style, svg
from analysis.formatting import title
from analysis.summaries.comparison import Comparison, Row, letter
from analysis.views.comparison import NOTHING_DIFFERS, about, header, judged, lines, name_of
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
_WIDTH = 10.8
_NOISE = "#8A8A8A"
_SHARED = 0.9
"""How much of a treatment's height its runs share."""
_DECADE = 10
"""A log axis that spans less has no second power of ten to label."""
_APART = tuple(COLOURS[place] for place in (0, 4, 2, 3, 5, 1, 6))


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


def page(comparison: Comparison) -> str:
    """The whole page."""
    return html_page(" against ".join(run.plan["run_id"] for run in comparison.runs), _parts(comparison))


def html_page(title: str, parts: Iterable[str]) -> str:
    """A page that loads nothing, with our style."""
    sheets = "".join((_TEMPLATE / name).read_text() for name in _SHEETS)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(title)}</title>\n'
        f"<style>\n{sheets}</style>\n</head>\n<body>\n<main>\n{''.join(parts)}</main>\n</body>\n</html>\n"
    )


def _parts(comparison: Comparison) -> Iterator[str]:
    yield f"<h1>{escape(comparison.runs[0].plan['experiment'])}, compared</h1>\n"
    for one in comparison.obstacles:
        yield f'<div class="notice warn"><strong>Compared anyway, {one.what}.</strong> {escape(one.because)}</div>\n'
    yield html_table(["run", "", "size"], _runs(comparison))
    for response in comparison.responses:
        rows = [row for row in comparison.rows if row.response == response]
        yield f"<h2>{escape(title(response))}</h2>\n"
        if figure := ratio_figure(comparison, rows):
            yield figure
        yield html_table(header(comparison, response), lines(comparison, response))
        yield f'<p class="source">{escape(about(comparison, response))}</p>\n'
    if comparison.judgements:
        yield "<h2>Gates</h2>\n"
        told = (
            (verdict, gate, run, why, "; ".join(where))
            for (verdict, gate, run, why), where in judged(comparison).items()
        )
        yield html_table(["", "gate", "run", "because", "in"], told)
    yield "<h2>What differs</h2>\n"
    letters = [letter(place) for place in range(len(comparison.runs))]
    rows_of = ((one.name, *one.values) for one in comparison.differences)
    yield html_table(["", *letters], rows_of, even=True) if comparison.differences else f"<p>{NOTHING_DIFFERS}</p>\n"


def _runs(comparison: Comparison) -> Iterator[Sequence[str]]:
    for place, run in enumerate(comparison.runs):
        emulated = ", emulated" if run.is_emulated else ""
        yield letter(place), run.plan["run_id"], f"{run.plan['size']}{emulated}"


def html_table(names: Sequence[str], rows: Iterable[Sequence[str]], *, even: bool = False) -> str:
    """A table; the lines of a cell after its first stand in small below it. Columns of an `even` one are alike."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{cell_html(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    kind = "pagecage even" if even else "pagecage"
    whole = f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>'
    return f'<div class="scroll">{whole}</div>\n'


def ratio_figure(comparison: Comparison, rows: Sequence[Row]) -> str | None:
    """Ratios with their intervals on a log axis, the noise floor as a band around 1."""
    drawn = [row for row in rows if any(change.ratio and change.ratio.low > 0 for change in row.changes)]
    if not drawn:
        return None
    with style():
        figure = Figure(figsize=(_WIDTH, 1.0 + 0.34 * len(drawn)))
        _draw(figure, comparison, drawn)
        return svg_html(figure, "Ratios of medians with their intervals, the noise floor grey") + "\n"


def _draw(figure: Figure, comparison: Comparison, rows: Sequence[Row]) -> None:
    axes, count = figure.subplots(), len(comparison.runs) - 1
    axes.axvline(1, color=_NOISE, lw=1)
    for place, row in enumerate(rows):
        for number, change in enumerate(row.changes):
            at = place + _SHARED * ((number + 0.5) / count - 0.5)
            colour, marker = _APART[number % len(_APART)], MARKERS[number % len(MARKERS)]
            if change.floor:
                share = 1 + change.floor.share
                axes.barh(at, share - 1 / share, left=1 / share, height=0.5 / count, color=_NOISE, alpha=0.3, lw=0)
            if change.ratio and change.ratio.low > 0 and change.ratio.high < float("inf"):
                axes.plot([change.ratio.low, change.ratio.high], [at, at], color=colour, lw=1.6)
                axes.plot([change.ratio.middle], [at], color=colour, marker=marker, ls="none", label=letter(number + 1))
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    if high / low < _DECADE:
        axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(rows)), [name_of(comparison, row.treatment) for row in rows])
    axes.invert_yaxis()
    handles, names = axes.get_legend_handles_labels()
    once = dict(zip(names, handles, strict=True))
    if count > 1:
        axes.legend(once.values(), once.keys(), loc="upper left", bbox_to_anchor=(1.01, 1.0))
