"""The sentences of a run: one for each caged treatment, and once how nearly a provider's ways were met."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from analysis.data.load import load_run
from analysis.summaries.diagnoses import fidelity, told_by_treatment
from analysis.views import evidence_tables
from analysis.views.notebook import Results
from analysis.views.run import show
from tests.fixtures.runs import build_run

EXACT = {"aspect": "io_size", "state": "exact", "reason": "requests are split at 256 KiB"}


def in_a_cloud(record: dict[str, Any]) -> None:
    record["cage"] = {**record["cage"], "fidelity": [EXACT]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_run(tmp_path_factory.mktemp("told") / "run", in_a_cloud)


def test_every_caged_treatment_has_its_sentence_and_no_other(folder):
    told = {tuple(treatment.values()): sentence for treatment, sentence in told_by_treatment(load_run(folder))}
    assert {treatment[0] for treatment in told} == {"tenth"}
    assert len(told) == 6
    assert sum("The OOM killer ended the program" in sentence for sentence in told.values()) == 2
    assert len(evidence_tables.diagnosis_table(load_run(folder))) == 6


def test_what_was_carried_is_told_once(folder):
    assert fidelity(load_run(folder)) == ["io size exact: requests are split at 256 KiB"]


def test_terminal_and_report_have_both(folder):
    console = Console(record=True, width=240, file=io.StringIO())
    show(load_run(folder), console)
    text = console.export_text()
    assert text.count("The OOM killer ended the program: it needs more memory than the MemoryMax") == 2
    assert text.count("io size exact: requests are split at 256 KiB.") == 1
    page = Results(folder).diagnosis.text
    assert "What held it back" in page
    assert "<li>io size exact: requests are split at 256 KiB.</li>" in page


def test_a_run_without_cages_has_no_such_part(tmp_path):
    def uncaged(record: dict[str, Any]) -> None:
        record["cage"] = {**record["cage"], "requested": {"MemorySwapMax": 0}}

    folder = build_run(tmp_path / "run", uncaged)
    assert list(told_by_treatment(load_run(folder))) == []
    assert Results(folder).diagnosis is None
