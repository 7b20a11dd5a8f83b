"""Runs as metrics in the text format of OpenMetrics 1.0 (RFC-style specification, 2020)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby

from analysis.data.load import Run
from analysis.exchange.figures import TreatmentFigure, figures_of, responses_of, unit_of
from analysis.summaries.cells import treatments, trials_of


def openmetrics(run: Run) -> str:
    """Return a gauge for each response, and the number of trials that were included and not.

    Labels are the run and the levels of the treatment. `statistic` is `median`, `low` or `high`.
    """
    found = sorted(figures_of(run, responses_of(run)), key=lambda figure: figure.response)
    lines: list[str] = []
    for response, figures in groupby(found, key=lambda figure: figure.response):
        name = f"pagecage_{_name(response)}"
        lines.append(f"# TYPE {name} gauge")
        if unit := unit_of(response):
            lines.append(f"# UNIT {name} {unit}")
        for figure in figures:
            lines += _samples(run, name, figure)
    lines += ["# TYPE pagecage_trials gauge", *_trial_counts(run), "# EOF"]
    return "\n".join(lines) + "\n"


def _samples(run: Run, name: str, figure: TreatmentFigure) -> Iterator[str]:
    summary = figure.summary
    for statistic, value in (
        ("median", summary.middle),
        ("low", summary.low),
        ("high", summary.high),
    ):
        yield f"{name}{_labels(run, figure.treatment, statistic=statistic)} {value!r}"


def _trial_counts(run: Run) -> Iterator[str]:
    for treatment in treatments(run):
        trials = trials_of(run.trials, treatment)
        included = sum(trial.is_included for trial in trials)
        counts = (("included", included), ("not included", len(trials) - included))
        for state, count in counts:
            yield f"pagecage_trials{_labels(run, treatment, state=state)} {count}"


def _labels(run: Run, treatment: Mapping[str, str], **more: str) -> str:
    labels = {"experiment": run.plan["experiment"], "run": run.plan["run_id"], **treatment, **more}
    pairs = (f'{_name(name)}="{_escaped(str(value))}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}"


def _name(text: str) -> str:
    """Return a name of letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
