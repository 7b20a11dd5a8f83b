"""What the notebook shows, one property or call a cell; each is HTML that stands by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis import figures, frames, tables
from analysis.load import Run, load_run
from analysis.look import style, svg
from analysis.prose import notices, story_html
from pagecage.units import PAGE_BYTES

KIB = 1024
_MARKED = {"✓": "good", "✗": "bad"}


@dataclass(frozen=True)
class Html:
    """HTML as a notebook cell's value."""

    text: str

    def _repr_html_(self) -> str:
        return self.text


class Results:
    """A run, ready to be shown. Frames are made once, when first asked for."""

    def __init__(self, run_dir: str | Path) -> None:
        """Raises PagecageError when `run_dir` is no run folder or has no record."""
        self.run: Run = load_run(Path(run_dir))

    @cached_property
    def trial_df(self) -> pd.DataFrame:
        """One row a trial."""
        return frames.trial_frame(self.run)

    @property
    def heading(self) -> Html:
        """Question, story, and what a reader must know before any figure."""
        return Html(story_html(self.run) + notices(self.run))

    @property
    def cells(self) -> Html:
        """The experiment's table."""
        return _table(_once(tables.cell_table(self.run), len(self.run.factors) - 2), "cells")

    @property
    def counts(self) -> Html:
        """How many trials count, and how many do not."""
        return _table(tables.counts_table(self.run), "narrow")

    @property
    def excluded(self) -> Html:
        """The trials that are not averaged in."""
        return _table(tables.excluded_table(self.run), empty="Every trial is averaged in.")

    @property
    def limits(self) -> Html:
        """Proof of the limits."""
        return _table(tables.limits_table(self.run), empty="No trial had a limit.")

    @property
    def proof(self) -> Html:
        """Cache state, quiet and what held each treatment back."""
        return _table(tables.proof_table(self.run))

    @property
    def claims(self) -> Html:
        """Published and measured."""
        return _table(tables.claims_table(self.run), "claims", empty="The definition makes no claims.")

    @property
    def strips(self) -> Html:
        """One point a trial."""
        return _figure(lambda: figures.strip_figure(self.run, self.trial_df, self.run.response), "One point a trial")

    @property
    def amplification(self) -> Html:
        """Bytes read for each byte asked for, with the read-ahead window as a mark."""
        return _figure(self._amplification, "Read amplification, one point a trial")

    def _amplification(self) -> Figure | None:
        if "amplification" not in self.trial_df:
            return None
        read = self.trial_df[self.trial_df["amplification"] > 0]
        if read.empty:
            return None
        return figures.strip_figure(self.run, read, "amplification", _marks(self.run))

    @property
    def timelines(self) -> Html:
        """MB/s and reads a second over time."""
        return _figure(
            lambda: figures.timeline_figure(
                self.run, self.trial_df, frames.sample_frame(self.run), frames.iostat_frame(self.run)
            ),
            "Disk rates over time",
        )

    @property
    def residency(self) -> Html:
        """What was resident where and when."""
        return _figure(
            lambda: figures.residency_figure(self.run, frames.vmtouch_frame(self.run)), "Residency over time"
        )

    @property
    def readahead(self) -> Html:
        """Sizes of read-ahead requests."""
        return _figure(
            lambda: figures.readahead_figure(self.run, frames.readahead_frame(self.run)), "Sizes of read-ahead requests"
        )

    @property
    def faults(self) -> Html:
        """Faults by the flags of the mapping."""
        return _table(tables.fault_table(frames.fault_frame(self.run)), empty="No trial has a trace of faults.")

    @property
    def trials(self) -> Html:
        """Every trial, folded away."""
        frame = tables.trial_table(self.run)
        inner = _table(frame, "long").text
        return Html(f"<details><summary>all {len(frame)} trials, in the order they ran</summary>{inner}</details>")

    @property
    def facts(self) -> Html:
        """What the host is."""
        frame = tables.facts_table(self.run)
        inner = _table(frame, "narrow", empty="The host's facts were not recorded.").text
        return Html(f"<details><summary>{len(frame)} facts of the host</summary>{inner}</details>")

    @property
    def making(self) -> Html:
        """How this was made, and how to make it again."""
        return _table(tables.making_table(self.run), "narrow")


def _marks(run: Run) -> dict[str, float]:
    """Amplification 1, and that of reading a whole window for one page."""
    sizes = {t.record.device.get("knobs", {}).get("read_ahead_kb") for t in run.trials} - {None}
    marks = {"each byte once": 1.0}
    if len(sizes) == 1:
        window = float(sizes.pop())
        marks[f"{window:.0f} KiB for each page"] = window * KIB / PAGE_BYTES
    return marks


def _once(frame: pd.DataFrame, columns: int) -> pd.DataFrame:
    """Levels that repeat the row above are left out of the first columns, as one would by hand."""
    told = frame.copy()
    for place in range(max(0, columns)):
        above = frame.iloc[:, : place + 1].shift().eq(frame.iloc[:, : place + 1]).all(axis=1)
        told.iloc[:, place] = frame.iloc[:, place].mask(above, "")
    return told


def _table(frame: pd.DataFrame, kind: str = "", *, empty: str = "Nothing to show.") -> Html:
    """A frame as a table of its own, in a box that scrolls where the page is too narrow."""
    if frame.empty:
        return Html(f"<p>{escape(empty)}</p>")
    text = frame.map(_cell).to_html(
        classes=f"pagecage {kind}".strip(), border=0, index=False, escape=False, justify="left"
    )
    return Html(f'<div class="scroll">{text}</div>')


def _cell(value: object) -> str:
    """A cell's first line, and below it in small what belongs to it; marks get their colour."""
    first, *rest = escape(str(value)).split("\n")
    kind = _MARKED.get(first[:1])
    text = f'<span class="{kind}">{first}</span>' if kind else first
    return text + "".join(f"<small>{line}</small>" for line in rest)


def _figure(draw: Callable[[], Figure | None], caption: str) -> Html:
    with style():
        figure = draw()
    if figure is None:
        return Html("<p>No trial has the traces for this figure.</p>")
    return Html(f'<figure><div class="scroll">{svg(figure, escape(caption))}</div></figure>')
