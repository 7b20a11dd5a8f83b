"""Common style of all figures: one colour and marker per treatment, distinguishable in grey."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis.cells import included_values, treatments
from analysis.data.load import Run, numeric_levels
from analysis.formatting import format_quantity, treatment_label

# Okabe and Ito, "Color Universal Design" (2008), without yellow and black, each of which one of two
# backgrounds hides. Neighbours differ as much as possible.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#8A8A8A")
GREY = "#8A8A8A"
MARKERS = ("o", "v", "s", "D", "^", "P", "X")
LINES = ("-", (0, (5, 2)), (0, (1, 1)), (0, (5, 1, 1, 1)))
MOST_GROUPS = 14
"""More lines than this are not distinguishable."""
TWO_DECADES = 100
"""A log axis that spans less has room for labels between the powers of ten."""
INK = "#010203"
"""Placeholder for the page's text colour, so that figures suit light and dark pages."""
_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "svg.hashsalt": "pagecage",
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
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
    """Drawing style of one treatment, and its name without the factors that do not vary.

    Treatments that differ only along the axis of a curve form one group: they share a colour and
    have different markers. `number` is the number of the group, `along` the level on that axis, and
    `others` the name without it. If there are too many groups to distinguish, one has several
    `others`, which `turn` numbers; together with the colour it tells every curve apart.
    """

    name: str
    colour: str
    marker: str
    line: Any
    number: int
    along: str
    others: str
    turn: int

    @property
    def curve_marker(self) -> str:
        """The marker of a curve, which no other curve of this colour has."""
        return MARKERS[(self.number + self.number // len(COLOURS) + self.turn) % len(MARKERS)]

    @property
    def curve_line(self) -> Any:
        return LINES[(self.number // len(COLOURS) + self.turn) % len(LINES)]


Styles = Mapping[str, TreatmentStyle]
"""The style of each treatment by its label, the same in every figure of a report."""


def treatment_styles(run: Run) -> dict[str, TreatmentStyle]:
    """Return the style of each treatment by its label, the same in every figure of a report."""
    varying = [name for name in run.factors if name not in run.layout.constant]
    numeric = numeric_factor(run)
    along = numeric[0] if numeric else varying[-1]
    others = [name for name in varying if name != along] or [along]
    numbers, found = _group_numbers(run, others), {}
    turns: dict[int, list[str]] = {}
    unit = f"{along.replace('_', ' ')} " if numeric else ""
    for treatment in treatments(run):
        position = number = numbers[tuple(treatment[name] for name in others)]
        if others != [along]:
            position = run.factors[along].index(treatment[along]) + number // len(COLOURS)
        name, rest = (
            treatment_label({f: treatment[f] for f in names}) for names in (varying, others)
        )
        alike = turns.setdefault(number, [])
        if rest not in alike:
            alike.append(rest)
        found[treatment_label(treatment)] = TreatmentStyle(
            name,
            COLOURS[number % len(COLOURS)],
            MARKERS[position % len(MARKERS)],
            LINES[position % len(LINES)],
            number,
            f"{unit}{treatment[along]}",
            rest,
            alike.index(rest),
        )
    return found


def numeric_factor(run: Run) -> tuple[str, dict[str, float]] | None:
    """Return the factor with the most numeric levels in this run; the later one of two."""
    found = None
    for name, levels in run.factors.items():
        used = {trial["treatment"][name] for trial in run.plan["trials"]}
        known = numeric_levels([level for level in levels if level in used])
        if known and (found is None or len(known) >= len(found[1])):
            found = name, known
    return found


def quantity_formatter(response: str) -> FuncFormatter:
    return FuncFormatter(lambda value, _: format_quantity(response, value))


def format_value_axis(axis: Axis, response: str) -> None:
    """Label an axis with quantities; a log axis below two decades has more than powers of ten."""
    axis.set_major_formatter(quantity_formatter(response))
    axis.set_minor_formatter(NullFormatter())
    low, high = axis.get_view_interval()
    if axis.get_scale() == "log" and high / low < TWO_DECADES:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))


def mark_value(axes: Axes, value: float, text: str, size: float, **look: Any) -> None:
    """Draw a dashed vertical line at a value, with a text of this font size above it."""
    axes.axvline(value, **{"color": GREY, "lw": 1.2, "ls": (0, (6, 3)), **look})
    above: dict[str, Any] = {"va": "bottom", "ha": "center", "fontsize": size}
    axes.annotate(text, (value, 1), xycoords=("data", "axes fraction"), **above)


def _group_numbers(run: Run, others: Sequence[str]) -> dict[tuple[str, ...], int]:
    """Return the number of the colour for each combination of levels."""
    keys = dict.fromkeys(tuple(treatment[name] for name in others) for treatment in treatments(run))
    if len(keys) <= MOST_GROUPS:
        return {key: number for number, key in enumerate(keys)}

    def spread_of_medians(position: int) -> float:
        logs: dict[str, list[float]] = {}
        for treatment in treatments(run):
            values = included_values(run, treatment, run.response)
            of_level = logs.setdefault(treatment[others[position]], [])
            of_level += [math.log(value) for value in values if value > 0]
        return statistics.pstdev([statistics.median(one) for one in logs.values() if one] or [0.0])

    position = max(range(len(others)), key=spread_of_medians)
    seen = {key[position] for key in keys}
    used = [level for level in run.factors[others[position]] if level in seen]
    return {key: used.index(key[position]) for key in keys}


def drawing_style() -> AbstractContextManager[None]:
    return mpl.rc_context(_STYLE)  # type: ignore[arg-type]


def svg(figure: Figure, alt: str) -> str:
    """Return the figure as SVG in the page's text colour; `alt` is HTML.

    Metadata is left out, so that equal figures have equal text. It is cut to what is drawn and fits
    the page's width.
    """
    out = StringIO()
    silent: Mapping[str, None] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with drawing_style():
        # bbox_inches="tight" would draw the whole figure once more to find its bounds.
        FigureCanvasSVG(figure)
        figure.set_dpi(FigureCanvasSVG.fixed_dpi)
        if engine := figure.get_layout_engine():
            engine.execute(figure)
            figure.set_layout_engine("none")
        bounds = figure.get_tightbbox().padded(mpl.rcParams["savefig.pad_inches"])
        figure.savefig(out, format="svg", metadata=silent, bbox_inches=bounds)
    text = out.getvalue()
    # A line per point would be millions of lines in the notebook, which stores texts as lists of
    # lines.
    text = text[text.index("<svg") :].replace(INK, "currentColor").replace(" \nL ", "L")
    size = r'(<svg [^>]*?)width="([\d.]+)pt" height="[\d.]+pt"'
    text = re.sub(size, r'\1style="max-width:\2pt;width:100%;height:auto"', text, count=1)
    return text.replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1)
