"""Metrics: figures in the output of a program."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pagecage.model.json_codec import from_json, to_json
from pagecage.model.services import (
    MetricMissing,
    MetricPattern,
    ServiceSpec,
    is_better_if_higher,
    read_metrics,
    wrong_pattern,
)
from pagecage.model.trial import Workload

PGBENCH = """pgbench (15.14)
progress: 5.0 s, 1234.5 tps, lat 6.478 ms stddev 2.233, 0 failed
latency average = 6.495 ms
tps = 1231.613449 (without initial connection time)
"""
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**15), 10**15)
keys = st.text("abcXYZ_", min_size=1, max_size=6)
documents = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def value(pattern: str, output: str) -> float:
    return MetricPattern(pattern).value("x", output)


def is_figure_or_missing(pattern: str, output: str) -> bool:
    try:
        return math.isfinite(value(pattern, output))
    except MetricMissing as error:
        return "'x'" in str(error)


def test_figures_of_pgbench() -> None:
    patterns = {
        "tps": MetricPattern(r"^tps = ([0-9.]+)"),
        "latency_ms": MetricPattern(r"latency average = ([0-9.]+) ms$"),
    }
    assert read_metrics(patterns, PGBENCH) == ({"tps": 1231.613449, "latency_ms": 6.495}, None)


@given(st.lists(numbers, min_size=1), st.text("ab\n "))
def test_the_last_match_counts(figures: list[float], between: str) -> None:
    output = between.join(f"tps = {figure!r};" for figure in figures)
    assert value(r"tps = ([^;]+);", output) == float(figures[-1])


@given(st.text(r"ab. \d=[]*+?|0", max_size=8), st.text())
def test_any_output_has_a_finite_figure_or_none(around: str, output: str) -> None:
    """No pattern that was accepted ends in another error, and none in a figure like nan."""
    pattern = f"{around}(.*)"
    assume(wrong_pattern(pattern) is None)
    assert is_figure_or_missing(pattern, output)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "1.2.3", "", "1,234"])
def test_what_is_not_a_number(text: str) -> None:
    with pytest.raises(MetricMissing, match="not a number"):
        value("tps=(.*);", f"tps={text};")


@given(st.lists(keys, min_size=1, max_size=4), numbers, st.sampled_from(["", "note\n", "[0]\n"]))
def test_a_path_finds_what_lies_there(path: list[str], figure: float, note: str) -> None:
    document: Any = figure
    for key in reversed(path):
        document = {key: [None, document]}
    pattern = "$" + "".join(f".{key}[-1]" for key in path)
    assert wrong_pattern(pattern) is None
    assert value(pattern, note + json.dumps(document)) == float(figure)
    assert value(pattern, note + json.dumps(document, indent=1)) == float(figure)


@given(documents, st.sampled_from(["$.a", "$[0]", "$[-1].b", '$["a b"].c[2]']))
def test_any_document_has_a_number_there_or_none(document: Any, path: str) -> None:
    assert is_figure_or_missing(path, json.dumps(document))


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("tps = [0-9.]+", "has no groups"),
        ("(a)(b)", "has 2 groups"),
        ("((", "not a regular expression"),
        ("$.a..b", "not a JSON path"),
        ("$.", "not a JSON path"),
        ("$[x]", "not a JSON path"),
    ],
)
def test_what_is_refused(pattern: str, says: str) -> None:
    assert says in (wrong_pattern(pattern) or "")


@pytest.mark.parametrize(
    ("name", "higher"),
    [
        ("tps", True),
        ("requests_per_second", True),
        ("p99_ms", False),
        ("p99", False),
        ("latency", False),
        ("read_lat_us", False),
        ("errors", False),
        ("failed_requests", False),
        ("platinum", True),
        ("elapsed_seconds", False),
    ],
)
def test_more_is_better_by_the_name(name: str, higher: bool) -> None:
    assert is_better_if_higher(name) is higher
    assert is_better_if_higher(name, MetricPattern("(x)", not higher)) is not higher


services = st.builds(
    ServiceSpec,
    st.lists(st.text(), min_size=1).map(tuple),
    st.dictionaries(
        st.text(), st.builds(MetricPattern, st.text(), st.none() | st.booleans()), max_size=3
    ),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.none() | st.floats(1, 1e6),
    st.sampled_from(["TERM", "INT"]),
)


@given(st.none() | services)
def test_a_service_survives_json(service: ServiceSpec | None) -> None:
    plain = json.loads(json.dumps(to_json(Workload("p", (), service=service))))
    assert ("service" in plain) == (service is not None)
    assert from_json(Workload, plain).service == service
