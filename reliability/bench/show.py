"""Figures on standard output, one line each."""

from __future__ import annotations

import sys

from reliability.bench.bed import Figure


def show(figure: Figure) -> None:
    sys.stdout.write(line(figure) + "\n")
    sys.stdout.flush()


def line(figure: Figure) -> str:
    """Format a figure as a line: ratio, interval if there is one, aim, and its parts."""
    interval = f"[{figure.low:.3f}, {figure.high:.3f}]" if figure.samples > 1 else ""
    mark = "" if figure.met else "  MISSED"
    return (
        f"{figure.name:<30} {figure.ratio:7.3f} {interval:<17} aim: {figure.aim:<25}"
        f" {figure.says}{mark}"
    )
