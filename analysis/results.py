"""What the notebook shows, one property a cell; each is HTML that stands by itself, or None: then nothing is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis import cell_tables, curves, figures, frames, grains, tables
from analysis.articles import Row, read_rows
from analysis.diagnoses import carried
from analysis.load import Run, load_run
from analysis.look import style, svg
from analysis.prose import answer_html, notices, story_html
from analysis.sweeps import rows, sentences, sweep_of
from analysis.wording import title
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

    @cached_property
    def sample_df(self) -> pd.DataFrame:
        """One row a timed pass of a workload."""
        return grains.sample_frame(self.run)

    @cached_property
    def counter_df(self) -> pd.DataFrame:
        """One row a counter of a trial."""
        return grains.counter_frame(self.run)

    @cached_property
    def trace_df(self) -> pd.DataFrame:
        """One row a tenth of a second of a trial: rates of the slice's I/O."""
        return frames.trace_frame(self.run)

    @property
    def heading(self) -> Html:
        """Question, story, and what a reader must know before any figure."""
        return Html(story_html(self.run) + notices(self.run))

    @property
    def answer(self) -> Html | None:
        """What the experiment found, in sentences."""
        found = answer_html(self.run)
        return Html(f'<h2>Answer</h2><ul class="answer">{found}</ul>') if found else None

    @property
    def cells(self) -> Html:
        """The experiment's table."""
        constant = self.run.layout.constant
        throughout = "; ".join(f"{name} {level}" for name, level in constant.items())
        told = f'<p class="source">Throughout: {escape(throughout)}.</p>' if throughout else ""
        kind = "cells" if self.run.layout.across else "cells rows"
        table = _table(_once(cell_tables.cell_table(self.run), len(self.run.layout.down) - 1), kind)
        return Html(told + (table.text if table else ""))

    @property
    def tables(self) -> Html | None:
        """Further tables that the definition asks for, each with what is to be known of it."""
        parts = [part for table in self.run.definition.get("tables", []) if (part := self._further(table))]
        return Html("".join(parts)) if parts else None

    def _further(self, table: Mapping[str, Any]) -> str | None:
        made = _table(cell_tables.response_table(self.run, table), "cells further")
        heading, about = (escape(self.run.filled(table.get(key, ""))) for key in ("title", "about"))
        return f"<h3>{heading}</h3>{f'<p>{about}</p>' if about else ''}{made.text}" if made else None

    @property
    def figure(self) -> Html | None:
        """The response over a factor that counts something; one point a trial where none does."""
        curve = lambda: curves.curve_figure(self.run, self.trial_df, self.run.response)  # noqa: E731
        return _figure(curve, f"{title(self.run.response)}, lines through medians") or self.strips

    @property
    def latencies(self) -> Html | None:
        """Percentiles, where the workload or fio told any."""
        with style():
            drawn = curves.latency_figures(self.run, self.trial_df)
        parts = [_svg(figure, f"Percentiles of {what.replace('_', ' ')}") for what, figure in drawn.items()]
        return Html("<h2>How late, how often</h2>" + "".join(parts)) if parts else None

    @property
    def claims(self) -> Html | None:
        """Published and measured; folded below it what no run could test."""
        made = _table(tables.claims_table(self.run), "claims")
        silent = _folded("published figures that this run says nothing about", tables.silent_table(self.run), "claims")
        left = _folded("published figures that no run here tests", tables.untestable_table(self.run, _rows()))
        if not made and not silent and not left:
            return None
        about = f"<p>{_ABOUT_CLAIMS}</p>" if made else ""
        parts = "".join(part.text for part in (made, silent, left) if part)
        return Html(f"<h2>Published and measured</h2>{about}{parts}")

    @property
    def sweep(self) -> Html | None:
        """Of a run that varied one limit: measured beside predicted, and the knee."""
        found = sweep_of(self.run)
        made = _table(pd.DataFrame(rows(found))) if found else None
        if found is None or made is None:
            return None
        told = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences(found))
        return Html(f"<h2>One limit varied</h2>{made.text}<ul>{told}</ul>")

    @property
    def diagnosis(self) -> Html | None:
        """What held each caged treatment back, in sentences that can be forwarded."""
        made = _table(tables.diagnosis_table(self.run), "narrow")
        told = "".join(f"<li>{escape(sentence)}.</li>" for sentence in carried(self.run))
        cloud = f"<p>How nearly the provider's ways were met:</p><ul>{told}</ul>" if told else ""
        return Html(f"<h2>What held it back</h2>{made.text}{cloud}") if made else None

    @property
    def evidence(self) -> Html:
        """What the verdicts rest on, folded: limits, cache, quiet, exclusions."""
        parts = (
            _folded("trials by what became of them", tables.counts_table(self.run), "narrow", counted=False),
            _folded("trials that are not averaged in", tables.excluded_table(self.run)),
            _folded("limits, and the proof that each was in force", tables.limits_table(self.run)),
            _folded("treatments: cache state, quiet, and what held each back", tables.proof_table(self.run)),
        )
        return Html("".join(part.text for part in parts if part))

    @property
    def strips(self) -> Html | None:
        """One point a trial."""
        return _figure(lambda: figures.strip_figure(self.run, self.trial_df, self.run.response), "One point a trial")

    @property
    def amplification(self) -> Html | None:
        """Bytes read for each byte asked for, with the read-ahead window as a mark."""
        return _headed("Read amplification", _figure(self._amplification, "Read amplification, one point a trial"))

    def _amplification(self) -> Figure | None:
        if "amplification" not in self.trial_df:
            return None
        read = self.trial_df[self.trial_df["amplification"] > 0]
        if read.empty:
            return None
        return figures.strip_figure(self.run, read, "amplification", _marks(self.run))

    @property
    def timelines(self) -> Html | None:
        """MB/s and I/Os a second over time."""
        made = _figure(
            lambda: figures.timeline_figure(self.run, self.trial_df, self.trace_df, frames.iostat_frame(self.run)),
            "Disk rates over time",
        )
        return _headed("The disk over time", made, _ABOUT_TIME)

    @property
    def residency(self) -> Html | None:
        """What was resident where and when."""
        draw = lambda: figures.residency_figure(self.run, frames.vmtouch_frame(self.run))  # noqa: E731
        return _headed("What was resident", _figure(draw, "Residency over time"), _ABOUT_RESIDENCY)

    @property
    def kernel(self) -> Html | None:
        """Sizes of read-ahead requests, and faults by the flags of the mapping."""
        draw = lambda: figures.readahead_figure(self.run, frames.readahead_frame(self.run))  # noqa: E731
        drawn = _figure(draw, "Sizes of read-ahead requests")
        faults = _folded(
            "kinds of faults, by the flags of the mapping", tables.fault_table(frames.fault_frame(self.run))
        )
        made = [part.text for part in (drawn, faults) if part]
        return _headed("Read-ahead", Html("".join(made)), _ABOUT_KERNEL) if made else None

    @property
    def trials(self) -> Html | None:
        """Every trial, folded away."""
        return _folded("trials, in the order they ran", tables.trial_table(self.run), "long")

    @property
    def facts(self) -> Html | None:
        """What the host is."""
        return _folded("facts of the host", tables.facts_table(self.run), "narrow")

    @property
    def making(self) -> Html | None:
        """How this was made, and how to make it again."""
        return _table(tables.making_table(self.run), "narrow")


_ABOUT_CLAIMS = "The rule by which each figure counts as reproduced was fixed before the first run."
_ABOUT_TIME = (
    "Lines: the slice's own I/O, from its <code>io.stat</code> ten times a second, averaged over half a second (0.2 s "
    "where a part is shorter than three). Marks: iostat's seconds for the whole disk, each in the middle of its second."
)
_ABOUT_RESIDENCY = (
    "vmtouch's bars below one another, time downwards. Full colour: all pages of that sixtieth of the data; pale: some."
)
_ABOUT_KERNEL = (
    "How many pages the kernel asked for at once (<code>page_cache_ra_order</code>), and with which flags the mapping "
    "faulted (<code>filemap_fault</code>)."
)


def _rows() -> list[Row]:
    return read_rows(Path(__file__).resolve().parents[1] / "experiments")


def _headed(heading: str, made: Html | None, about: str = "") -> Html | None:
    """A part with its heading; nothing where there is nothing to head."""
    text = f"<p>{about}</p>" if about else ""
    return Html(f"<h3>{escape(heading)}</h3>{text}{made.text}") if made else None


def _folded(about: str, frame: pd.DataFrame, kind: str = "", *, counted: bool = True) -> Html | None:
    """A table behind its summary; nothing for an empty one."""
    made = _table(frame, kind)
    number = f" ({len(frame)})" if counted else ""
    return Html(f"<details><summary>{escape(about)}{number}</summary>{made.text}</details>") if made else None


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


def _table(frame: pd.DataFrame, kind: str = "") -> Html | None:
    """A frame as a table of its own, in a box that scrolls where the page is too narrow; nothing for an empty one."""
    if frame.empty:
        return None
    text = frame.map(_cell).to_html(
        classes=f"pagecage {kind}".strip(), border=0, index=False, escape=False, justify="left"
    )
    return Html(f'<div class="scroll">{text}</div>')


def _cell(value: object) -> str:
    """A cell's first line, and below it in small what belongs to it; marks get their colour."""
    first, *rest = escape(str(value)).split("\n")
    kind = _MARKED.get(first[:1])
    text = f'<span class="{kind}">{first}</span>' if kind else first
    return text + "".join(f"<small{_LONG if len(line) > _LONG_LINE else ''}>{line}</small>" for line in rest)


_LONG_LINE = 60
"""A line below a figure that is longer is a sentence, which may break."""
_LONG = ' class="long"'


def _figure(draw: Callable[[], Figure | None], caption: str) -> Html | None:
    with style():
        figure = draw()
    return Html(_svg(figure, caption)) if figure else None


def _svg(figure: Figure, caption: str) -> str:
    return f'<figure><div class="scroll">{svg(figure, escape(caption))}</div></figure>'
