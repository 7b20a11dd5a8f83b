"""Diagnoses and wrong answers, in tables and reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from analysis.articles.evaluate import evaluate_claims
from analysis.articles.findings import evaluate_findings
from analysis.cells import causes, diagnosis_by_treatment, fidelity_lines, make_cell
from analysis.data.load import Run, load_run
from analysis.views.evidence_tables import response_table
from analysis.views.notebook import Results, notices_html
from analysis.views.run import run_report
from pagecage.model.json_codec import Json
from pagecage.report.terminal import terminal_text
from tests.builders.record_changes import updated, where
from tests.fixtures.runs import DEFINITION, Change, build_run

EXACT = {"aspect": "io_size", "state": "exact", "reason": "requests are split at 256 KiB"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def in_a_cloud(record: Json) -> None:
        record["cage"]["fidelity"] = [EXACT]

    return build_run(tmp_path_factory.mktemp("told") / "run", in_a_cloud)


def test_only_caged_treatments_have_a_diagnosis(folder: Path) -> None:
    diagnoses = {
        tuple(treatment.values()): found.sentence
        for treatment, found in diagnosis_by_treatment(load_run(folder))
    }
    assert {treatment[0] for treatment in diagnoses} == {"tenth"}
    assert len(diagnoses) == 6
    killed = [one for one in diagnoses.values() if "The OOM killer ended the program" in one]
    assert len(killed) == 2
    assert sum(len(cause.diagnoses) for cause in causes(load_run(folder))) == 6


def test_fidelity_lines_are_not_repeated(folder: Path) -> None:
    assert fidelity_lines(load_run(folder)) == ["io size exact: requests are split at 256 KiB"]


def test_terminal_and_report_have_both_and_each_cause_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    text = terminal_text(run_report(load_run(folder)), whole=True)
    killed = "The OOM killer ended the program: it needs more memory than the MemoryMax"
    assert text.count(killed) == 1
    assert text.count("io size exact: requests are split at 256 KiB.") == 1
    diagnosis = Results(folder).diagnosis
    assert diagnosis is not None
    assert "<h2>Diagnosis</h2>" in diagnosis.text
    assert "<li>io size exact: requests are split at 256 KiB.</li>" in diagnosis.text


def test_a_run_without_cages_has_no_diagnosis(tmp_path: Path) -> None:
    def uncaged(record: Json) -> None:
        record["cage"]["requested"] = {"MemorySwapMax": 0}

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


is_wrong = updated(outcome="wrong_answer", error=f"{SENTENCE}.", emulated=False)
all_wrong = where(WRONG, is_wrong)
once_wrong = where(WRONG, is_wrong, repeat=2)


def run_of(
    tmp_path: Path,
    change: Change = all_wrong,
    *,
    claims: Sequence[Json] = (),
    findings: Sequence[Json] = (),
    tables: Sequence[Json] = (),
) -> Run:
    """Load a run of twelve cells, one of which always answers wrongly, or as `change` alters it."""
    lists = {"claims": list(claims), "findings": list(findings), "tables": list(tables)}
    return load_run(build_run(tmp_path / "run", change, definition={**DEFINITION, **lists}))


def wrong_and_noisy(record: Json) -> None:
    all_wrong(record)
    if record["treatment"] == WRONG:
        record["counters"]["after"]["device"]["sectors_read"] += 10**7


def test_a_cell_shows_the_outcome_and_what_was_wrong_and_never_a_bare_time(tmp_path: Path) -> None:
    cell = make_cell(run_of(tmp_path), WRONG, "full_pass_seconds")
    assert cell.text.startswith("wrong: 6")
    assert SENTENCE in cell.spread
    assert "unanswered" not in cell.spread
    assert make_cell(run_of(tmp_path / "x"), RIGHT, "full_pass_seconds").wrong == 0


def test_wrong_answers_are_not_averaged_and_all_are_reported(tmp_path: Path) -> None:
    run = run_of(tmp_path, once_wrong)
    cell = make_cell(run, WRONG, "full_pass_seconds")
    assert cell.summary is not None
    assert cell.summary.n == 2
    assert not cell.text.startswith("wrong")
    assert f"1 more with a wrong answer: {SENTENCE}" in cell.spread


def test_a_wrong_answer_on_a_noisy_host_is_shown_as_both(tmp_path: Path) -> None:
    cell = make_cell(run_of(tmp_path, wrong_and_noisy), WRONG, "full_pass_seconds")
    assert cell.text.startswith("(wrong: ")
    assert cell.text.endswith("†")


def test_the_report_says_how_many_and_does_not_call_the_run_unfinished(tmp_path: Path) -> None:
    notices = notices_html(run_of(tmp_path))
    assert "3 of 36 trials gave a wrong answer" in notices
    assert "Unfinished" not in notices


@pytest.mark.parametrize(("change", "verdict"), [(all_wrong, "held"), (wrong_and_noisy, "no_data")])
def test_a_claim_that_accepts_wrong_answers_is_evaluated_with_a_remark(
    tmp_path: Path, change: Change, verdict: str
) -> None:
    [found] = evaluate_claims(
        run_of(tmp_path, change, claims=[{**CLAIM, "with_wrong_answers": True}])
    )
    assert found.verdict == verdict
    assert (SENTENCE in found.reason) == (verdict == "held")


def test_a_claim_without_wrong_answers_has_no_data_and_a_reason(tmp_path: Path) -> None:
    [found] = evaluate_claims(run_of(tmp_path, claims=[CLAIM]))
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
    tmp_path: Path, change: Change, published: str, verdict: str, measured: str
) -> None:
    rule = {"rule": "outcome", "published": published, "unit": "outcome", "response": None}
    claim = {**CLAIM, **rule}
    [found] = evaluate_claims(run_of(tmp_path, change, claims=[claim]))
    assert (found.verdict, found.measured) == (verdict, measured)
    assert SENTENCE in found.reason


def test_a_finding_that_accepts_wrong_answers_has_a_remark(tmp_path: Path) -> None:
    table: Json = {"question": "", "says": "it takes {value}", "where": WRONG}
    table["response"] = "full_pass_seconds"
    tables = [{**table, "with_wrong_answers": True}, table]
    with_, without = evaluate_findings(run_of(tmp_path, findings=tables))
    assert with_.is_proven
    assert SENTENCE in with_.note
    assert (without.value, without.note) == (None, f"a wrong answer: {SENTENCE}")


def test_ratios_are_compared(tmp_path: Path) -> None:
    """Random takes 1.5 times as long as sequential on the heap, 1.9 times with an unloaded file."""

    unloaded = {"source": "unloaded"}
    sides = {"where": WRONG | unloaded, "over": RIGHT | unloaded, "than": WRONG, "than_over": RIGHT}
    rule = {"rule": "ordering_of_ratios", "published": "greater", "unit": "x"}
    claim = {**CLAIM, **rule, **sides}
    less = {**claim, "published": "less"}

    run = run_of(tmp_path, updated(emulated=False), claims=[claim, less])
    held, not_held = evaluate_claims(run)
    assert (held.verdict, not_held.verdict, held.unit) == ("held", "not_held", "x")
    assert isinstance(held.measured, float)
    assert 1.0 < held.measured < 1.5
    assert held.reason.startswith("one ratio is 1.")


def test_a_further_table_has_what_varies_and_what_was_published(tmp_path: Path) -> None:
    table = {
        "title": "Uncaged, {ops} times",
        "where": {"cage": "uncaged", "source": "heap"},
        "columns": {"time": "full_pass_seconds", "bytes": "device_read_bytes"},
    }
    run = run_of(tmp_path, claims=[CLAIM], tables=[table])
    frame = response_table(run, table)
    assert [*map(tuple, frame.columns)] == [
        *(("pattern", ""), ("time", "published"), ("time", "measured"), ("bytes", "measured"))
    ]
    rows = dict(zip(frame["pattern", ""], frame["time", "published"], strict=True))
    assert rows == {"sequential": "", "random": "62 ms"}
    assert any(SENTENCE in text for text in frame["time", "measured"])
    alone = response_table(run, {**table, "columns": {"bytes": "device_read_bytes"}})
    assert [*alone.columns] == ["pattern", "bytes"]
    tables = Results(run.path).tables
    assert tables is not None
    assert "Uncaged, {ops} times" in tables.text, "a place that the size has not is left as it is"


def test_a_table_without_its_treatments_is_left_out(tmp_path: Path) -> None:
    table = {"title": "t", "where": {"cage": "elsewhere"}, "columns": {"time": "full_pass_seconds"}}
    assert Results(run_of(tmp_path, tables=[table]).path).tables is None
