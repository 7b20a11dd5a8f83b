"""The formats of other programs in which a run can be written, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from analysis.data.load import Run
from analysis.exchange.dashboards import bencher, github_benchmark, hyperfine
from analysis.exchange.junit import junit
from analysis.exchange.openmetrics import openmetrics

WRITERS: Mapping[str, Callable[[Run], str]] = {
    "bencher": bencher,
    "github-benchmark": github_benchmark,
    "hyperfine": hyperfine,
    "junit": junit,
    "openmetrics": openmetrics,
}
