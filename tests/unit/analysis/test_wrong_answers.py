"""Diagnoses and wrong answers, in tables and reports."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.articles.evaluate import evaluate_claims
from analysis.articles.findings import evaluate_findings
from analysis.cells import causes, diagnosis_by_treatment, fidelity_lines, make_cell
from analysis.data.load import Run, load_run
from analysis.views.evidence_tables import response_table
from analysis.views.notebook import Results, notices_html
from analysis.views.run import run_report
from pagecage.report.terminal import terminal_text
from tests.fixtures.runs import DEFINITION, build_run

EXACT = {"aspect": "io_size", "state": "exact", "reason": "requests are split at 256 KiB"}


def in_a_cloud(record: dict[str, Any]) -> None:
    record["cage"] = {**record["cage"], "fidelity": [EXACT]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_run(tmp_path_factory.mktemp("told") / "run", in_a_cloud)


def test_only_caged_treatments_have_a_diagnosis(folder):
    diagnoses = {
        tuple(treatment.values()): found.sentence
        for treatment, found in diagnosis_by_treatment(load_run(folder))
    }
    assert {treatment[0] for treatment in diagnoses} == {"tenth"}
    assert len(diagnoses) == 6
    assert (
        sum("The OOM killer ended the program" in sentence for sentence in diagnoses.values()) == 2
    )
    assert sum(len(cause.diagnoses) for cause in causes(load_run(folder))) == 6


def test_fidelity_lines_are_not_repeated(folder):
    assert fidelity_lines(load_run(folder)) == ["io size exact: requests are split at 256 KiB"]


def test_terminal_and_report_have_both_and_each_cause_once(folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")
    text = terminal_text(run_report(load_run(folder)), whole=True)
    assert (
        text.count("The OOM killer ended the program: it needs more memory than the MemoryMax") == 1
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


WRONG = {"cage": "uncaged", "source": "heap", "pattern": "random"}
RIGHT = {"cage": "uncaged", "source": "heap", "pattern": "sequential"}
SENTENCE = "3 of 9000 records are lost"
CLAIM = {
    "id": "004-1",
    "rule": "absolute",
    "says": "time",
    "published": 62.0,
    "unit": "ms",
    "tolerance_factor": 2.0,
    "response": "full_pass_seconds",
    "where": WRONG,
    "over": None,
    "needs": "any_size",
    "remark": "",
}


def run_of(
    tmp_path: Any, change: Any = None, claims: Any = (), findings: Any = (), tables: Any = ()
) -> Run:
    """Load a run of twelve cells, one of which always answers wrongly, or as `change` alters it."""
    definition = {
        **DEFINITION,
        "claims": list(claims),
        "findings": list(findings),
        "tables": list(tables),
    }
    return load_run(build_run(tmp_path / "run", change or all_wrong, definition=definition))


def all_wrong(record: dict[str, Any]) -> None:
    if record["treatment"] == WRONG:
        record |= {"outcome": "wrong_answer", "error": f"{SENTENCE}.", "emulated": False}


def once_wrong(record: dict[str, Any]) -> None:
    if record["repeat"] == 2:
        all_wrong(record)


def wrong_and_noisy(record: dict[str, Any]) -> None:
    all_wrong(record)
    if record["treatment"] == WRONG:
        record["counters"]["after"]["device"]["sectors_read"] += 10**7


def test_a_cell_shows_the_outcome_and_what_was_wrong_and_never_a_bare_time(tmp_path: Any) -> None:
    cell = make_cell(run_of(tmp_path), WRONG, "full_pass_seconds")
    assert cell.text.startswith("wrong: 6")
    assert SENTENCE in cell.spread
    assert "unanswered" not in cell.spread
    assert make_cell(run_of(tmp_path / "x"), RIGHT, "full_pass_seconds").wrong == 0


def test_wrong_answers_are_not_averaged_and_all_are_reported(tmp_path: Any) -> None:
    run = run_of(tmp_path, once_wrong)
    cell = make_cell(run, WRONG, "full_pass_seconds")
    assert cell.summary is not None
    assert cell.summary.n == 2
    assert not cell.text.startswith("wrong")
    assert f"1 more with a wrong answer: {SENTENCE}" in cell.spread


def test_a_wrong_answer_on_a_noisy_host_is_shown_as_both(tmp_path: Any) -> None:
    cell = make_cell(run_of(tmp_path, wrong_and_noisy), WRONG, "full_pass_seconds")
    assert cell.text.startswith("(wrong: ")
    assert cell.text.endswith("†")


def test_the_report_says_how_many_and_does_not_call_the_run_unfinished(tmp_path: Any) -> None:
    notices = notices_html(run_of(tmp_path))
    assert "3 of 36 trials gave a wrong answer" in notices
    assert "Unfinished" not in notices


@pytest.mark.parametrize(("change", "verdict"), [(all_wrong, "held"), (wrong_and_noisy, "no_data")])
def test_a_claim_that_accepts_wrong_answers_is_evaluated_with_a_remark(
    tmp_path: Any, change: Any, verdict: str
) -> None:
    [found] = evaluate_claims(run_of(tmp_path, change, [{**CLAIM, "with_wrong_answers": True}]))
    assert found.verdict == verdict
    assert (SENTENCE in found.reason) == (verdict == "held")


def test_a_claim_without_wrong_answers_has_no_data_and_a_reason(tmp_path: Any) -> None:
    [found] = evaluate_claims(run_of(tmp_path, None, [CLAIM]))
    assert (found.verdict, found.reason) == ("no_data", f"a wrong answer: {SENTENCE}")


@pytest.mark.parametrize(
    ("change", "published", "verdict", "measured"),
    [
        (all_wrong, "wrong_answer", "held", "wrong answer"),
        (all_wrong, "ran", "not_held", "wrong answer"),
        (once_wrong, "wrong_answer", "not_held", "ran or wrong answer"),
    ],
)
def test_a_claim_about_outcomes_knows_wrong_ones(
    tmp_path: Any, change: Any, published: str, verdict: str, measured: str
) -> None:
    claim = {
        **CLAIM,
        "rule": "outcome",
        "published": published,
        "unit": "outcome",
        "response": None,
    }
    [found] = evaluate_claims(run_of(tmp_path, change, [claim]))
    assert (found.verdict, found.measured) == (verdict, measured)
    assert SENTENCE in found.reason


def test_a_finding_that_accepts_wrong_answers_has_a_remark(tmp_path: Any) -> None:
    table = {
        "question": "",
        "says": "it takes {value}",
        "response": "full_pass_seconds",
        "where": WRONG,
    }
    with_, without = evaluate_findings(
        run_of(tmp_path, None, (), [{**table, "with_wrong_answers": True}, table])
    )
    assert with_.is_proven
    assert SENTENCE in with_.note
    assert (without.value, without.note) == (None, f"a wrong answer: {SENTENCE}")


def test_ratios_are_compared(tmp_path: Any) -> None:
    """Random takes 1.5 times as long as sequential on the heap, 1.9 times with an unloaded file."""

    def side(source: str, pattern: str) -> dict[str, str]:
        return {"cage": "uncaged", "source": source, "pattern": pattern}

    claim = {
        **CLAIM,
        "rule": "ordering_of_ratios",
        "published": "greater",
        "unit": "x",
        "where": side("unloaded", "random"),
        "over": side("unloaded", "sequential"),
        "than": side("heap", "random"),
        "than_over": side("heap", "sequential"),
    }
    less = {**claim, "published": "less"}

    def on_hardware(record: dict[str, Any]) -> None:
        record["emulated"] = False

    held, not_held = evaluate_claims(run_of(tmp_path, on_hardware, [claim, less]))
    assert (held.verdict, not_held.verdict, held.unit) == ("held", "not_held", "x")
    assert isinstance(held.measured, float)
    assert 1.0 < held.measured < 1.5
    assert held.reason.startswith("one ratio is 1.")


def test_a_further_table_has_what_varies_and_what_was_published(tmp_path: Any) -> None:
    table = {
        "title": "Uncaged, {ops} times",
        "where": {"cage": "uncaged", "source": "heap"},
        "columns": {"time": "full_pass_seconds", "bytes": "device_read_bytes"},
    }
    run = run_of(tmp_path, None, [CLAIM], (), [table])
    frame = response_table(run, table)
    assert list(frame.columns) == [
        ("pattern", ""),
        ("time", "published"),
        ("time", "measured"),
        ("bytes", "measured"),
    ]
    rows = dict(zip(frame["pattern", ""], frame["time", "published"], strict=True))
    assert rows == {"sequential": "", "random": "62 ms"}
    assert any(SENTENCE in text for text in frame["time", "measured"])
    assert list(
        response_table(run, {**table, "columns": {"bytes": "device_read_bytes"}}).columns
    ) == [
        "pattern",
        "bytes",
    ]
    tables = Results(run.path).tables
    assert tables is not None
    assert "Uncaged, {ops} times" in tables.text, "a place that the size has not is left as it is"


def test_a_table_without_its_treatments_is_left_out(tmp_path: Any) -> None:
    table = {"title": "t", "where": {"cage": "elsewhere"}, "columns": {"time": "full_pass_seconds"}}
    assert Results(run_of(tmp_path, None, (), (), [table]).path).tables is None
