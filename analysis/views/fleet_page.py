"""A fleet run as one HTML page: hosts, tables, figures, facts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from html import escape as escape_html
from pathlib import Path

from analysis.figures.ratios import RATIO_ALT, ratio_figure
from analysis.formatting import title
from analysis.summaries.fleet import Fleet
from analysis.views.fleet import NOTHING, about, fact_lines, header, hosts, left_out_words, lines, part_words
from analysis.views.html import figure_html, html_page, html_table, write_page


def write_report(fleet: Fleet) -> Path:
    """Write report.html into the fleet run's folder; its path."""
    target = fleet.path / "report.html"
    write_page(html_page(f"{fleet.document['experiment']} · {fleet.document['run_id']}", parts(fleet)), target)
    return target


def parts(fleet: Fleet) -> Iterator[str]:
    """The page's body."""
    yield f"<h1>{escape_html(fleet.document['experiment'])} on {escape_html(fleet.document['group'])}</h1>\n"
    if fleet.comparison is not None:
        yield f"<p>{escape_html(fleet.comparison.runs[0].definition['question'])}</p>\n"
    for part in fleet.parts:
        kind = "notice" if part.is_whole else "notice warn"
        yield f'<div class="{kind}">{escape_html(part_words(part))}</div>\n'
    for words in left_out_words(fleet):
        yield f'<div class="notice warn">{escape_html(words)}</div>\n'
    if fleet.comparison is None:
        yield f"<p>{NOTHING}</p>\n"
        return
    for one in fleet.comparison.obstacles:
        differs = f"<strong>Hosts differ in {one.what}.</strong> {escape_html(one.reason)}"
        yield f'<div class="notice warn">{differs}</div>\n'
    yield f"<h2>{escape_html(title(fleet.comparison.responses[0]))}</h2>\n"
    if figure := figure_html(partial(ratio_figure, fleet.comparison, fleet.comparison.rows), lambda: RATIO_ALT):
        yield f"{figure.text}\n"
    yield html_table(header(fleet), lines(fleet))
    yield f'<p class="source">{escape_html(about(fleet))}</p>\n'
    yield "<h2>What each host is</h2>\n"
    yield html_table(["", "", *hosts(fleet)], fact_lines(fleet), even=True)
