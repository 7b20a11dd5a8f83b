"""One look for every figure: a colour and a marker a treatment, the same everywhere, told apart in grey as well."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from analysis.cells import treatments
from analysis.load import Run
from analysis.wording import label

# Okabe and Ito, "Color Universal Design" (2008), without the yellow and the black that one of two backgrounds hides.
COLOURS = ("#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#8A8A8A")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
LINES = ("-", (0, (5, 2)), (0, (1, 1)), (0, (5, 1, 1, 1)))
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
class Look:
    """How one treatment is drawn, and its name beside others: without the factors that do not vary."""

    name: str
    colour: str
    marker: str
    line: Any


def looks(run: Run) -> dict[str, Look]:
    """A look for each treatment's label: colour by all factors but the last that varies, marker and line by that."""
    constant = run.layout.constant
    *others, across = [name for name in run.factors if name not in constant]
    levels = run.factors[across]
    groups: dict[tuple[str, ...], int] = {}
    found = {}
    for treatment in treatments(run):
        group = groups.setdefault(tuple(treatment[name] for name in others), len(groups))
        place = levels.index(treatment[across]) + group // len(COLOURS)
        if not others:
            group, place = place, 0
        name = label({factor: treatment[factor] for factor in (*others, across)})
        look = COLOURS[group % len(COLOURS)], MARKERS[place % len(MARKERS)], LINES[place % len(LINES)]
        found[label(dict(treatment))] = Look(name, *look)
    return found


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
        figure.savefig(out, format="svg", metadata=silent, bbox_inches="tight")
    text = out.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"<svg [^>]*?width=\"([\d.]+)pt\" height=\"[\d.]+pt\"", _sized, text, count=1)
    return text.replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1)


def _sized(match: re.Match[str]) -> str:
    """As wide as the page allows and as it was drawn at most."""
    return re.sub(
        r'width="([\d.]+)pt" height="[\d.]+pt"', r'style="max-width:\1pt;width:100%;height:auto"', match.group()
    )
