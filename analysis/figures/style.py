"""One look for every figure: a colour and a marker a treatment, the same everywhere, told apart in grey as well."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from analysis.data.levels import numbers
from analysis.data.load import Run
from analysis.formatting import label
from analysis.summaries.cells import figures, treatments

# Okabe and Ito, "Color Universal Design" (2008), without the yellow and the black that one of two backgrounds hides;
# in an order in which neighbours are as different as can be.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#8A8A8A")
GREY = "#8A8A8A"
MARKERS = ("o", "v", "s", "D", "^", "P", "X")
LINES = ("-", (0, (5, 2)), (0, (1, 1)), (0, (5, 1, 1, 1)))
MOST_GROUPS = 14
"""More lines than this cannot be told apart."""
INK = "#010203"
"""Stands for the page's own text colour, so that a figure is readable on light and dark."""
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pagecage",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    **{f"{part}.color": INK for part in ("text", "xtick", "ytick", "grid")},
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
}


@dataclass(frozen=True)
class TreatmentStyle:
    """How one treatment is drawn, and its name beside others: without the factors that do not vary.

    Treatments that differ only along the axis of a curve are one `group`: they share the colour, and markers tell them
    apart. `number` is the group's, `along` the level on that axis.
    """

    name: str
    colour: str
    marker: str
    line: Any
    group: str
    number: int
    along: str


def looks(run: Run) -> dict[str, TreatmentStyle]:
    """A look for each treatment's label, the same in every figure of a report."""
    varying = [name for name in run.factors if name not in run.layout.constant]
    numeric = numeric_factor(run)
    along = numeric[0] if numeric else varying[-1]
    others = [name for name in varying if name != along] or [along]
    groups, found = _groups(run, others), {}
    unit = f"{along.replace('_', ' ')} " if numeric else ""
    for treatment in treatments(run):
        number, told = groups[tuple(treatment[name] for name in others)]
        place = number if others == [along] else run.factors[along].index(treatment[along]) + number // len(COLOURS)
        name = label({factor: treatment[factor] for factor in varying})
        drawn = COLOURS[number % len(COLOURS)], MARKERS[place % len(MARKERS)], LINES[place % len(LINES)]
        found[label(dict(treatment))] = TreatmentStyle(name, *drawn, told, number, f"{unit}{treatment[along]}")
    return found


def numeric_factor(run: Run) -> tuple[str, dict[str, float]] | None:
    """The factor with the most levels that are numbers and vary in this run; of two the later one."""
    found = None
    for name in run.factors:
        used = [v for v in run.factors[name] if any(trial["treatment"][name] == v for trial in run.plan["trials"])]
        known = numbers(used)
        if known and (found is None or len(known) >= len(found[1])):
            found = name, known
    return found


def _groups(run: Run, others: Sequence[str]) -> dict[tuple[str, ...], tuple[int, str]]:
    """For each combination of levels the number of its colour, and what a legend says: all of its levels.

    Where there are too many to tell apart it is the level of the one factor that tells most of the response.
    """
    keys = list(dict.fromkeys(tuple(treatment[name] for name in others) for treatment in treatments(run)))
    if len(keys) <= MOST_GROUPS:
        return {key: (number, " · ".join(key)) for number, key in enumerate(keys)}
    place = max(range(len(others)), key=lambda one: _explained(run, others[one]))
    used = [level for level in run.factors[others[place]] if level in {key[place] for key in keys}]
    return {key: (used.index(key[place]), f"{others[place]} {key[place]}") for key in keys}


def _explained(run: Run, factor: str) -> float:
    """How far apart the levels of a factor are, as the response stands on a log axis."""
    logs: dict[str, list[float]] = {}
    for treatment in treatments(run):
        found = [value for value in figures(run, treatment, run.response) if value > 0]
        logs.setdefault(treatment[factor], []).extend(map(math.log, found))
    return statistics.pstdev([statistics.median(values) for values in logs.values() if values] or [0.0])


@contextmanager
def style() -> Iterator[None]:
    """Draw within this to have the project's look."""
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        yield


def svg(figure: Figure, alt: str) -> str:
    """The figure as SVG to be set into a page: its ink is the page's, and it names no other place."""
    out = StringIO()
    silent: Mapping[str, None] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with style():
        figure.savefig(out, format="svg", metadata=silent, bbox_inches=_laid_out(figure))
    text = out.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"<svg [^>]*?width=\"([\d.]+)pt\" height=\"[\d.]+pt\"", _sized, text, count=1)
    return text.replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1)


def _laid_out(figure: Figure) -> Bbox:
    """Place what is in the figure; its bounds with a margin, in inches.

    `bbox_inches="tight"` would do the same and draw the whole figure once more to get there.
    """
    FigureCanvasSVG(figure)
    figure.set_dpi(FigureCanvasSVG.fixed_dpi)
    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine("none")
    return figure.get_tightbbox().padded(mpl.rcParams["savefig.pad_inches"])


def _sized(match: re.Match[str]) -> str:
    """As wide as the page allows and as it was drawn at most."""
    return re.sub(
        r'width="([\d.]+)pt" height="[\d.]+pt"', r'style="max-width:\1pt;width:100%;height:auto"', match.group()
    )
