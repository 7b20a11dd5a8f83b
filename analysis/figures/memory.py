"""Figure of a search for memory: time and refaults over MemoryMax."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from analysis.figures.charts import WIDTH
from analysis.figures.curves import draw_legend
from analysis.figures.style import COLOURS, GREY, INK
from analysis.summaries.memory import MemoryRun, MemoryStep
from pagecage.units import format_bytes, format_seconds

FEWEST_POINTS = 2
_KILLED = "killed or given up"
Point = tuple[float, MemoryStep]


def memory_figure(found: MemoryRun) -> Figure | None:
    """Draw the time on the left and the refaults on the right, with the needs as lines.

    The reference is drawn at the memory that it used. None below two levels.
    """
    points = memory_points(found)
    if len(points) < FEWEST_POINTS:
        return None
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    times, refaults = figure.subplots(1, 2)
    _draw_times(times, points)
    _draw_refaults(refaults, points)
    for axes, criterion in ((times, "time"), (refaults, "refaults")):
        _mark_need(axes, found, criterion)
        _format_axis(axes)
        draw_legend(axes, inside=True)
    return figure


def memory_points(found: MemoryRun) -> list[Point]:
    """Return the steps by the memory that they may use, least first."""
    used = found.answer.used_bytes if found.answer else None
    placed = [(step.limit_bytes or used, step) for step in found.steps]
    points = [(size, step) for size, step in placed if size is not None]
    if used is not None:
        points = [(min(size, used), step) for size, step in points]
    return sorted(points, key=lambda point: point[0])


def _draw_times(axes: Axes, points: Sequence[Point]) -> None:
    counted = [(size, step.seconds) for size, step in points if step.seconds is not None]
    axes.plot(*_columns(counted), color=COLOURS[0], marker="o", ms=5, lw=1.6, label="counts")
    others = [
        (size, step.shown_seconds)
        for size, step in points
        if step.seconds is None and step.shown_seconds is not None and step.outcome == "ok"
    ]
    axes.plot(*_columns(others), color=COLOURS[0], marker="o", mfc="none", ls="", label="excluded")
    _draw_ended(axes, points)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_seconds(value)))
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.set_ylabel("time")


def _draw_refaults(axes: Axes, points: Sequence[Point]) -> None:
    counted = [
        (size, step.refaults)
        for size, step in points
        if step.refaults is not None and not step.oom_kills
    ]
    axes.plot(*_columns(counted), color=COLOURS[1], marker="o", ms=5, lw=1.6, label="pages")
    _draw_ended(axes, points)
    axes.set_yscale("symlog", linthresh=100)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("pages read again")


def _draw_ended(axes: Axes, points: Sequence[Point]) -> None:
    """Mark the levels at which the OOM killer or the time limit ended a trial, at the top."""
    ended = [(size, 0.97) for size, step in points if step.outcome != "ok" or step.oom_kills]
    axes.plot(
        *_columns(ended),
        color=INK,
        marker="x",
        ls="",
        label=_KILLED,
        transform=axes.get_xaxis_transform(),
    )


def _columns(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in pairs], [y for _, y in pairs]


def _mark_need(axes: Axes, found: MemoryRun, criterion: str) -> None:
    needs = found.answer.needs if found.answer else ()
    for need in needs:
        if need.criterion == criterion:
            axes.axvline(need.needed_bytes, color=GREY, lw=1.2, ls=(0, (6, 3)))
            axes.annotate(
                f"needed: {format_bytes(need.needed_bytes)}",
                (need.needed_bytes, 1),
                xycoords=("data", "axes fraction"),
                va="bottom",
                ha="center",
                fontsize=8.5,
            )


def _format_axis(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("MemoryMax")


def memory_alt_text(found: MemoryRun) -> str:
    """Describe the least and the most memory, and the answer."""
    parts = [
        f"{_described(step)} at {format_bytes(size)}"
        for size, step in (memory_points(found)[0], memory_points(found)[-1])
    ]
    return f"Time and refaults over MemoryMax: {', '.join(parts)}. {' '.join(found.sentences)}"


def _described(step: MemoryStep) -> str:
    if step.outcome != "ok" or step.shown_seconds is None:
        return step.outcome.replace("_", " ")
    return format_seconds(step.shown_seconds)
