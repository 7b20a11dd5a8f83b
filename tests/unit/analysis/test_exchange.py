"""Runs in the formats of other programs, read by the programs' own readers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from junitparser import JUnitXml
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from analysis.cells import make_cell, treatments
from analysis.data.load import Run, load_run
from analysis.exchange import WRITERS, _text, is_rate
from pagecage.errors import PagecageError
from tests.fixtures.small_runs import NAMES, unpacked

_FIGURE = {"type": "number"}
BENCHER = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {
            "type": "object",
            "required": ["value"],
            "additionalProperties": False,
            "properties": {"value": _FIGURE, "lower_value": _FIGURE, "upper_value": _FIGURE},
        },
    },
}
"""Bencher Metric Format (bencher.dev, "Bencher Metric Format")."""
GITHUB_BENCHMARK = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string"},
            "unit": {"type": "string"},
            "value": _FIGURE,
            "range": {"type": "string"},
            "extra": {"type": "string"},
        },
    },
}
"""Entries of `customSmallerIsBetter` (README of github-action-benchmark)."""


@cache
def stored(name: str) -> Run:
    with TemporaryDirectory() as folder:
        return load_run(unpacked(name, Path(folder) / name))


def proven(run: Run) -> dict[str, float]:
    """Return the medians of the main response by the levels, of treatments that are proven."""
    cells = (make_cell(run, treatment, run.response) for treatment in treatments(run))
    return {
        " · ".join(cell.treatment.values()): cell.summary.middle
        for cell in cells
        if cell.summary and not cell.is_all_excluded and not cell.is_all_wrong
    }


def check(data: Any, schema: Mapping[str, Any]) -> None:
    Draft202012Validator(schema).validate(data)


@pytest.mark.parametrize("name", NAMES)
def test_bencher_and_github_have_each_proven_figure_and_no_other(name: str) -> None:
    run = stored(name)
    expected = {f"{name}: {label}" if label else name: v for label, v in proven(run).items()}
    bencher = json.loads(WRITERS["bencher"](run))
    github = json.loads(WRITERS["github-benchmark"](run))
    if expected:
        check(bencher, BENCHER)
        check(github, GITHUB_BENCHMARK)
    found = {key: row[run.response]["value"] for key, row in bencher.items() if run.response in row}
    assert found == pytest.approx(expected)
    assert {row["name"]: row["value"] for row in github} == pytest.approx(expected)


def test_more_transactions_per_second_are_better() -> None:
    run = stored("postgres-gp3")
    assert is_rate(run, "tps")
    assert not is_rate(run, "latency_average_ms")
    assert is_rate(stored("fio-matrix"), stored("fio-matrix").response)


@pytest.mark.parametrize("name", NAMES)
def test_openmetrics_is_read(name: str) -> None:
    run = stored(name)
    parsed: Callable[[str], Iterator[Metric]] = text_string_to_metric_families
    families = {family.name: family for family in parsed(WRITERS["openmetrics"](run))}
    trials = families["pagecage_trials"].samples
    assert sum(sample.value for sample in trials) == len(run.trials)
    figures = families.get(f"pagecage_{run.response}")
    medians = (
        [s.value for s in figures.samples if s.labels["statistic"] == "median"] if figures else []
    )
    assert sorted(medians) == pytest.approx(sorted(proven(run).values()))


@pytest.mark.parametrize("name", NAMES)
def test_junit_is_read_and_a_trial_without_a_figure_does_not_pass(name: str) -> None:
    run = stored(name)
    (suite,) = JUnitXml.fromstring(WRITERS["junit"](run).encode())
    assert suite.tests == len(run.trials)
    passed = {case.name for case in suite if case.is_passed}
    assert passed == {trial.record.trial_id for trial in run.trials if trial.is_included}
    kinds = [type(result).__name__ for case in suite for result in case.result]
    counted = {"Failure": suite.failures, "Error": suite.errors, "Skipped": suite.skipped}
    assert {kind: kinds.count(kind) for kind in counted} == counted


def test_hyperfine_has_the_times_in_seconds() -> None:
    run = stored("constrained-random")
    results = json.loads(WRITERS["hyperfine"](run))["results"]
    assert {row["parameters"]["cage"] for row in results}
    for row in results:
        assert min(row["times"]) == row["min"] <= row["median"] <= row["max"] == max(row["times"])


def test_hyperfine_has_no_rates() -> None:
    run = stored("fio-matrix")
    assert run.response.endswith("_per_second")
    with pytest.raises(PagecageError, match="durations"):
        WRITERS["hyperfine"](run)


@given(st.text())
def test_any_text_fits_into_xml(text: str) -> None:
    element = ElementTree.Element("a", message=_text(text))
    ElementTree.fromstring(ElementTree.tostring(element))
