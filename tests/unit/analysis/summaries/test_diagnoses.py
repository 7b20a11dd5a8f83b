"""Tests of diagnoses by treatment, and of the fidelity to a provider's behaviour."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from analysis.cells import diagnosis_by_treatment, fidelity_lines
from analysis.data.load import load_run
from analysis.views import evidence_tables
from analysis.views.notebook import Results
from analysis.views.run import run_report
from pagecage.report.terminal import print_report
from tests.fixtures.runs import build_run

EXACT = {"aspect": "io_size", "state": "exact", "reason": "requests are split at 256 KiB"}


def in_a_cloud(record: dict[str, Any]) -> None:
    record["cage"] = {**record["cage"], "fidelity": [EXACT]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_run(tmp_path_factory.mktemp("told") / "run", in_a_cloud)


def test_only_caged_treatments_have_a_diagnosis(folder):
    diagnoses = {
        tuple(treatment.values()): sentence
        for treatment, sentence in diagnosis_by_treatment(load_run(folder))
    }
    assert {treatment[0] for treatment in diagnoses} == {"tenth"}
    assert len(diagnoses) == 6
    assert (
        sum("The OOM killer ended the program" in sentence for sentence in diagnoses.values()) == 2
    )
    assert len(evidence_tables.diagnosis_table(load_run(folder))) == 6


def test_fidelity_lines_are_not_repeated(folder):
    assert fidelity_lines(load_run(folder)) == ["io size exact: requests are split at 256 KiB"]


def test_terminal_and_report_have_both(folder):
    console = Console(record=True, width=240, file=io.StringIO())
    print_report(run_report(load_run(folder)), console)
    text = console.export_text()
    assert (
        text.count("The OOM killer ended the program: it needs more memory than the MemoryMax") == 2
    )
    assert text.count("io size exact: requests are split at 256 KiB.") == 1
    page = Results(folder).diagnosis.text
    assert "<h2>Diagnosis</h2>" in page
    assert "<li>io size exact: requests are split at 256 KiB.</li>" in page


def test_a_run_without_cages_has_no_diagnosis(tmp_path):
    def uncaged(record: dict[str, Any]) -> None:
        record["cage"] = {**record["cage"], "requested": {"MemorySwapMax": 0}}

    folder = build_run(tmp_path / "run", uncaged)
    assert list(diagnosis_by_treatment(load_run(folder))) == []
    assert Results(folder).diagnosis is None
