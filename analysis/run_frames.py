"""Runs, and the published figures of an article, as data frames."""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields
from functools import cached_property
from pathlib import Path

import pandas as pd

from analysis.articles.evaluate import ClaimResult, evaluate_claims
from analysis.articles.ratios import hosted_scorecard
from analysis.articles.sides import included_ratio
from analysis.cells import median_table
from analysis.data import frames
from analysis.data.load import bundled_runs, include_by_name, load_run, opened
from pagecage.bundle.pack import SUFFIX
from pagecage.checkout import RUNS, TOP
from pagecage.errors import PagecageError
from pagecage.model.published_figures import read_rows

EXPERIMENTS = TOP / "experiments"
STORED = TOP / "docs/runs"
"""Bundles of the runs from which the project's pages are made."""


def find_run(source: str | Path, bundles: Path | None = None) -> Path:
    """Return the folder or bundle of a run.

    `source` is its path, its id, or the name of an experiment, for the newest run of it. Names are
    looked up among the runs made here, then among the stored ones; or in `bundles` alone, a folder.
    Raises PagecageError if there is no such run.
    """
    if Path(source).exists():
        return Path(source)
    folder, made_here = bundles or STORED, [RUNS / str(source), RUNS / f"latest-{source}"]
    name = re.compile(rf"\d{{8}}T\d{{6}}Z-{re.escape(str(source))}-[^-]+{re.escape(SUFFIX)}")
    newest = sorted(folder.glob(f"*{SUFFIX}"), reverse=True)
    of_experiment = (path for path in newest if name.fullmatch(path.name))
    for path in (*([] if bundles else made_here), folder / f"{source}{SUFFIX}", *of_experiment):
        if path.exists():
            return path
    raise PagecageError(f"there is no run '{source}'", "name a run's folder or its bundle")


class RunFrames:
    """A run as data frames, each made once, on first use."""

    def __init__(
        self, source: str | Path, include: Sequence[str] = (), bundles: Path | None = None
    ) -> None:
        """Load a run; `source` and `bundles` are as for `find_run`.

        A bundle is unpacked into a temporary folder, which is removed with this object. Raises
        PagecageError if there is no such run, if it has no record, and for a name in `include` that
        selects no excluded trial.
        """
        stack = ExitStack()
        weakref.finalize(self, stack.close)
        path = stack.enter_context(opened(find_run(source, bundles)))
        self.run = include_by_name(load_run(path), include)

    @property
    def question(self) -> str:
        return str(self.run.definition["question"])

    @property
    def response(self) -> str:
        return self.run.response

    @property
    def factors(self) -> Mapping[str, list[str]]:
        return self.run.factors

    @property
    def about(self) -> pd.DataFrame:
        run, facts = self.run, next(iter(self.run.facts), {})
        rows = {
            "run": run.run_id,
            "experiment": run.experiment,
            "size": run.size,
            "kernel": facts.get("kernel", ""),
            "processor": facts.get("cpu_model", ""),
            "emulated": run.is_emulated,
            "trials planned": len(run.plan["trials"]),
            "trials included": sum(trial.is_included for trial in run.trials),
        }
        return pd.DataFrame({"value": rows})

    @cached_property
    def trial_df(self) -> pd.DataFrame:
        return frames.trial_frame(self.run)

    @cached_property
    def sample_df(self) -> pd.DataFrame:
        """One row per timed pass of a workload."""
        return frames.sample_frame(self.run)

    @cached_property
    def counter_df(self) -> pd.DataFrame:
        """One row per kernel counter of a trial."""
        return frames.counter_frame(self.run)

    @cached_property
    def trace_df(self) -> pd.DataFrame:
        """One row per 0.1 s of a trial: rates of the slice's I/O."""
        return frames.trace_frame(self.run)

    @cached_property
    def latency_df(self) -> pd.DataFrame:
        """One row per bucket of a trial's latency histograms."""
        from analysis.figures.latencies import latency_frame  # late: it imports matplotlib

        return latency_frame(self.run)

    @cached_property
    def claim_df(self) -> pd.DataFrame:
        """One row per published figure: the published and the measured one, in one unit."""
        columns = [field.name for field in fields(ClaimResult)]
        return pd.DataFrame(map(asdict, evaluate_claims(self.run)), columns=columns)

    def medians(self, response: str = "") -> pd.DataFrame:
        """Return one row per treatment: its levels, its median with an interval, and counts.

        Figures are in the response's own unit, NaN without one; `n` trials are included. The levels
        are ordered categories, so that a pivot keeps their order.
        """
        columns, rows = median_table(self.run, response or self.response)
        frame = pd.DataFrame(rows, columns=columns)
        numbers = dict.fromkeys(("median", "low", "high"), float)
        return self._with_ordered_levels(frame.astype(numbers))

    def ratios(
        self, over: Mapping[str, str], under: Mapping[str, str], response: str = ""
    ) -> pd.DataFrame:
        """Return `over` divided by `under`, with an interval, for all levels of the other factors.

        Both name levels, such as `{"cage": "tenth"}` and `{"cage": "uncaged"}`. Combinations
        without an included trial on both sides are left out.
        """
        fixed = {*over, *under}
        others = {name: levels for name, levels in self.factors.items() if name not in fixed}
        rows = []
        for levels in itertools.product(*others.values()):
            common, name = dict(zip(others, levels, strict=True)), response or self.response
            sides = {**common, **over}, {**common, **under}
            if found := included_ratio(self.run, name, *sides):
                rows.append([*levels, found.middle, found.low, found.high, found.kind, found.n])
        columns = [*others, "ratio", "low", "high", "kind", "n"]
        return self._with_ordered_levels(pd.DataFrame(rows, columns=columns))

    def _with_ordered_levels(self, frame: pd.DataFrame) -> pd.DataFrame:
        for name in set(self.factors) & set(frame):
            frame[name] = pd.Categorical(frame[name], self.factors[name], ordered=True)
        return frame


def bundles_of(folder: Path, experiments: Collection[str]) -> list[Path]:
    """Return the bundles in a folder, without those named after another experiment."""
    if not folder.is_dir():
        raise PagecageError(f"{folder} is not a folder", "name a folder of bundles")
    names = "|".join(map(re.escape, experiments))
    may_be = re.compile(rf"(?!\d{{8}}T\d{{6}}Z-)|\d{{8}}T\d{{6}}Z-({names})-")
    return [path for path in sorted(folder.glob(f"*{SUFFIX}")) if may_be.match(path.name)]


def article_frame(article: str, bundles: Path) -> pd.DataFrame:
    """Return one row per figure that an article published, with the measured one.

    `article` is the first part of its figures' ids, such as `002`; `bundles` is a folder. Raises
    PagecageError if no figure belongs to the article, or if the folder does not exist.
    """
    published = read_rows(EXPERIMENTS)
    rows = [row for row in published if row.id.startswith(f"{article}-")]
    if not rows:
        known = sorted({row.id.partition("-")[0] for row in published})
        raise PagecageError(f"there is no article {article!r}", f"one of {', '.join(known)}")
    tested = {name for row in rows for name in row.experiments}
    with bundled_runs(*bundles_of(bundles, tested)) as runs:
        scored = {row.id: asdict(row) for row in hosted_scorecard(EXPERIMENTS, runs).card.rows}
    return pd.DataFrame(
        [{**scored[row.id], "condition": row.condition, "metric": row.metric} for row in rows]
    )
