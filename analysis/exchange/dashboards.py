"""Runs in the formats of programs that draw benchmarks over time, and of hyperfine's scripts."""

from __future__ import annotations

import json
import statistics
from typing import Any

from analysis.data.load import Run
from analysis.exchange.figures import (
    TreatmentFigure,
    figures_of,
    is_rate,
    is_time,
    responses_of,
    seconds,
    unit_of,
)
from pagecage.errors import PagecageError


def bencher(run: Run) -> str:
    """Return the run in Bencher's metric format: figures by treatment and response."""
    found: dict[str, dict[str, Any]] = {}
    for figure in figures_of(run, responses_of(run)):
        summary = figure.summary
        found.setdefault(figure.name, {})[figure.response] = {
            "value": summary.middle,
            "lower_value": summary.low,
            "upper_value": summary.high,
        }
    return _json(found)


def github_benchmark(run: Run) -> str:
    """Return the main response for github-action-benchmark.

    Its tool is `customSmallerIsBetter`, or `customBiggerIsBetter` for a rate.
    """
    return _json([_benchmark(run, figure) for figure in figures_of(run, [run.response])])


def _benchmark(run: Run, figure: TreatmentFigure) -> dict[str, Any]:
    summary = figure.summary
    better = "more" if is_rate(run, figure.response) else "less"
    return {
        "name": figure.name,
        "unit": unit_of(figure.response) or "count",
        "value": summary.middle,
        "range": f"{summary.low:g} to {summary.high:g}",
        "extra": f"{figure.response} ({better} is better)\nrun {run.plan['run_id']}\nn {summary.n}",
    }


def hyperfine(run: Run) -> str:
    """Return the main response as `hyperfine --export-json` does, a result for each treatment.

    Raises PagecageError if the response is not a duration.
    """
    if not is_time(run.response):
        message = f"hyperfine's format holds durations, and {run.response} is none"
        raise PagecageError(message, "--format bencher")
    return _json({"results": [_result(figure) for figure in figures_of(run, [run.response])]})


def _result(figure: TreatmentFigure) -> dict[str, Any]:
    times = [seconds(figure.response, value) for value in figure.values]
    return {
        "command": figure.name,
        "mean": statistics.fmean(times),
        "stddev": statistics.stdev(times) if len(times) > 1 else None,
        "median": statistics.median(times),
        "min": min(times),
        "max": max(times),
        "times": times,
        "parameters": dict(figure.treatment),
    }


def _json(data: Any) -> str:
    return json.dumps(data, indent=2) + "\n"
