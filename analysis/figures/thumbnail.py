"""Thumbnail of a report: its headline figure, and the main response of a few treatments."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.data.load import Run
from analysis.figures.style import INK, drawing_style, svg, treatment_styles
from analysis.formatting import format_quantity, response_title, treatment_label
from analysis.summaries.cells import TreatmentCell, make_cell, treatments

WIDTH, HEIGHT = 360.0, 202.5
"""Size in points: 480 x 270 CSS pixels."""
MOST_BARS = 6
_LABELS, _VALUES, _MARGIN = 138.0, 66.0, 8.0
"""Widths of the columns of labels and of values, and of the margin, in points."""
_HEAD, _ROW = 42.0, 24.5
_TEXT, _LABEL_TEXT, _NOTE_TEXT = 11.5, 10.3, 9.0
_LONGEST_LABEL = 23
_LONGEST_TITLE = 28
_UNITS = ("_seconds", "_bytes", "_us", "_ms", "_ns")
"""Suffixes of responses; the figures beside the bars have the units."""
_MOST_LINEAR = 40.0
"""Ratio of the longest to the shortest bar above which the scale is logarithmic."""


@dataclass(frozen=True)
class Bar:
    """One treatment; `value` is None if it has no figure, and `text` is then the reason."""

    label: str
    text: str
    value: float | None
    colour: str
    is_included: bool


def thumbnail_svg(run: Run, headline: str = "", published: str = "") -> str:
    """Return the thumbnail; `headline` is a ratio such as `36×`, beside the published one."""
    found = bars(run)
    with drawing_style():
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
        axes.axis("off")
        _draw_headline(axes, headline, published)
        _draw_bars(axes, run, found)
        text = "; ".join(f"{bar.label}: {bar.text}" for bar in found)
        alt_text = escape(f"{response_title(run.response)}: {text}")
        return svg(figure, alt_text, is_tight=False)


def bars(run: Run) -> list[Bar]:
    """Return up to MOST_BARS treatments in the definition's order.

    If there are more, those with a figure come first, at even distances between the least and the
    greatest figure.
    """
    styles = treatment_styles(run)
    found = []
    for treatment in treatments(run):
        style = styles[treatment_label(treatment)]
        found.append(_bar(make_cell(run, treatment, run.response), style.name, style.colour))
    if len(found) <= MOST_BARS:
        return found
    ranked = sorted(found, key=lambda bar: (bar.value is None, bar.value or 0.0))
    figures = [bar for bar in ranked if bar.value is not None] or ranked
    last = len(figures) - 1
    chosen = {round(step * last / (MOST_BARS - 1)) for step in range(MOST_BARS)}
    return sorted((figures[one] for one in chosen), key=found.index)


def _bar(cell: TreatmentCell, label: str, colour: str) -> Bar:
    value = cell.summary.middle if cell.summary else None
    none = "killed" if cell.killed else "–"
    text = none if value is None else format_quantity(cell.response, value)
    is_included = not cell.is_all_excluded and not cell.is_all_wrong
    return Bar(label, text, value, colour, is_included)


def _draw_headline(axes: Axes, headline: str, published: str) -> None:
    """Draw the ratio at the top right, and the published one to its left."""
    if headline:
        _write(axes, WIDTH - _MARGIN, _HEAD / 2, headline, 22, ha="right", weight="bold")
    if published:
        left = WIDTH - _MARGIN - 14.5 * len(headline) - 6
        _write(axes, left, _HEAD / 2 + 5, f"published {published}", _NOTE_TEXT, ha="right")


def _draw_bars(axes: Axes, run: Run, found: Sequence[Bar]) -> None:
    """Draw the rows below the title of the response, and a note on hollow bars."""
    lengths, is_logarithmic = _lengths(found)
    lines = textwrap.wrap(_title(run.response), _LONGEST_TITLE, max_lines=2, placeholder=" …")
    _write(axes, _MARGIN, _HEAD / 2, "\n".join(lines), _TEXT)
    notes = ["log scale"] if is_logarithmic else []
    notes += [] if all(bar.is_included for bar in found) else ["hollow: excluded"]
    _write(axes, WIDTH - _MARGIN, HEIGHT - 7, ", ".join(notes), _NOTE_TEXT, ha="right")
    for position, (bar, length) in enumerate(zip(found, lengths, strict=True)):
        _draw_bar(axes, _HEAD + _ROW * (position + 0.5), bar, length)


def _title(response: str) -> str:
    unit = next((unit for unit in _UNITS if response.endswith(unit)), "")
    title = response_title(response)
    return title.removesuffix(unit.replace("_", " "))


def _label_lines(label: str) -> str:
    """Return a label on one line, or on two of about the same length."""
    if len(label) <= _LONGEST_LABEL:
        return label
    words = label.split(" · ")
    middle = min(range(1, len(words) + 1), key=lambda one: _longest_line(words, one))
    lines = [" · ".join(words[:middle]), " · ".join(words[middle:])]
    return "\n".join(_shortened(line) for line in lines if line)


def _shortened(line: str) -> str:
    return line if len(line) <= _LONGEST_LABEL else f"{line[: _LONGEST_LABEL - 1]}…"


def _longest_line(words: Sequence[str], middle: int) -> int:
    return max(len(" · ".join(words[:middle])), len(" · ".join(words[middle:])))


def _draw_bar(axes: Axes, middle: float, bar: Bar, length: float) -> None:
    """Draw one row, hollow if its figure rests on excluded trials or wrong answers."""
    start, whole = _MARGIN + _LABELS, WIDTH - 2 * _MARGIN - _LABELS - _VALUES
    face = bar.colour if bar.is_included else "none"
    _write(axes, start - 6, middle, _label_lines(bar.label), _LABEL_TEXT, ha="right")
    if length:
        corner = (start, middle - 0.32 * _ROW)
        size = (max(1.5, length * whole), 0.64 * _ROW)
        axes.add_patch(Rectangle(corner, *size, facecolor=face, edgecolor=bar.colour, lw=1.2))
    _write(axes, start + length * whole + 5, middle, bar.text, _TEXT)


def _lengths(found: Sequence[Bar]) -> tuple[list[float], bool]:
    """Return the lengths as shares of the longest bar, and whether they are logarithmic."""
    values = [bar.value for bar in found if bar.value]
    if not values or min(values) < 0:
        return [0.0 for _ in found], False
    low, high = min(values), max(values)
    if high / low <= _MOST_LINEAR:
        return [(bar.value or 0.0) / high for bar in found], False
    decades = math.log10(high / low) + 0.3
    lengths = [(math.log10(bar.value / low) + 0.3) / decades if bar.value else 0.0 for bar in found]
    return lengths, True


def _write(
    axes: Axes, x: float, y: float, text: str, size: float, ha: str = "left", weight: str = "normal"
) -> None:
    axes.text(
        x, y, text, fontsize=size, ha=ha, va="center", weight=weight, color=INK, linespacing=1.05
    )
