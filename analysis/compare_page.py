"""A comparison as one page that loads nothing: a figure of the ratios, the tables, what differs, the gates."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from analysis.compare import Comparison, Row, letter
from analysis.compare_show import NOTHING_DIFFERS, about, header, judged, lines, name_of
from analysis.look import COLOURS, MARKERS, style
from analysis.markup import cell_html, svg_html
from analysis.wording import title
from pagecage.errors import PagecageError

_TEMPLATE = Path(__file__).resolve().parent / "templates/offline"
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
