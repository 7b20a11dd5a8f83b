"""Figures go to standard output, a line each."""

from __future__ import annotations

import sys

from tests.bench.bed import Figure


def show(figure: Figure) -> None:
    """Print a figure at once."""
    sys.stdout.write(line(figure) + "\n")
    sys.stdout.flush()


def line(figure: Figure) -> str:
    """A figure as a line: ratio, interval where there is one, aim, and what it is made of."""
    interval = f"[{figure.low:.3f}, {figure.high:.3f}]" if figure.samples > 1 else ""
    mark = "" if figure.met else "  MISSED"
    return f"{figure.name:<30} {figure.ratio:7.3f} {interval:<17} aim: {figure.aim:<25} {figure.says}{mark}"
