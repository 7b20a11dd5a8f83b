"""A comparison as one HTML page: figures, tables, differences, gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from html import escape

from analysis.figures.ratios import RATIO_ALT, ratio_figure
from analysis.formatting import title
from analysis.summaries.comparison import Comparison, letter
from analysis.views.comparison import NOTHING_DIFFERS, about, header, judged, lines
from analysis.views.html import figure_html, html_page, html_table


def page(comparison: Comparison) -> str:
    """The whole page."""
    return html_page(" against ".join(run.plan["run_id"] for run in comparison.runs), _parts(comparison))


def _parts(comparison: Comparison) -> Iterator[str]:
    yield f"<h1>{escape(comparison.runs[0].plan['experiment'])}, compared</h1>\n"
    for one in comparison.obstacles:
        yield f'<div class="notice warn"><strong>Compared anyway, {one.what}.</strong> {escape(one.reason)}</div>\n'
    yield html_table(["run", "", "size"], _runs(comparison))
    for response in comparison.responses:
        rows = [row for row in comparison.rows if row.response == response]
        yield f"<h2>{escape(title(response))}</h2>\n"
        if figure := figure_html(partial(ratio_figure, comparison, rows), lambda: RATIO_ALT):
            yield f"{figure.text}\n"
        yield html_table(header(comparison, response), lines(comparison, response))
        yield f'<p class="source">{escape(about(comparison, response))}</p>\n'
    if comparison.judgements:
        yield "<h2>Gates</h2>\n"
        told = (
            (verdict, gate, run, why, "; ".join(where))
            for (verdict, gate, run, why), where in judged(comparison).items()
        )
        yield html_table(["", "gate", "run", "reason", "in"], told)
    yield "<h2>What differs</h2>\n"
    letters = [letter(place) for place in range(len(comparison.runs))]
    rows_of = ((one.name, *one.values) for one in comparison.differences)
    yield html_table(["", *letters], rows_of, even=True) if comparison.differences else f"<p>{NOTHING_DIFFERS}</p>\n"


def _runs(comparison: Comparison) -> Iterator[Sequence[str]]:
    for place, run in enumerate(comparison.runs):
        emulated = ", emulated" if run.is_emulated else ""
        yield letter(place), run.plan["run_id"], f"{run.plan['size']}{emulated}"
