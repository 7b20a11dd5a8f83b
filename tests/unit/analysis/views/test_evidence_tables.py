"""Tests of loading a run, and of its tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from analysis.cells import make_cell, treatments
from analysis.data import frames
from analysis.data.load import Run, load_run
from analysis.formatting import treatment_label
from analysis.views import evidence_tables
from analysis.views.html import block_table_html
from analysis.views.run import main_table
from pagecage.errors import PagecageError
from pagecage.model.json_codec import Json
from pagecage.model.published_figures import read_definitions
from pagecage.report.model import Report, to_markdown
from pagecage.report.terminal import terminal_text
from tests.builders.record_changes import responding, updated, warm, where
from tests.builders.run_edits import edit
from tests.fixtures.runs import DEFINITION, PAGES, Change, build_run
from tests.tree import ROOT

CAGED_RANDOM = {"cage": "tenth", "source": "unloaded", "pattern": "random"}
LABEL = treatment_label(CAGED_RANDOM)
UNCAGED = {"cage": "uncaged", "source": "unloaded", "pattern": "sequential"}


def of_caged_random(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["treatment"] == LABEL]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(build_run(tmp_path_factory.mktemp("tables") / "run"))


def test_a_missing_folder_missing_records_and_foreign_records_are_error_messages(
    tmp_path: Path,
) -> None:
    with pytest.raises(PagecageError, match="not a run folder"):
        load_run(tmp_path)
    folder = build_run(tmp_path / "run")
    lines = (folder / "records.jsonl").read_text().splitlines()
    (folder / "records.jsonl").write_text("")
    with pytest.raises(PagecageError, match="no record yet"):
        load_run(folder)
    stranger = {**json.loads(lines[0]), "trial_id": "stranger"}
    (folder / "records.jsonl").write_text(f"{json.dumps(stranger)}\n")
    with pytest.raises(PagecageError, match="stranger"):
        load_run(folder)


def test_a_plan_without_a_key_is_an_error_message(tmp_path: Path) -> None:
    folder = build_run(tmp_path / "run")
    edit(folder / "plan.json", lambda plan: plan.pop("definition"))
    with pytest.raises(PagecageError, match="lacks 'definition'"):
        load_run(folder)


def test_the_last_attempt_counts_and_a_line_cut_off_is_skipped(tmp_path: Path) -> None:
    folder = build_run(tmp_path / "run")
    file = folder / "records.jsonl"
    first = json.loads(file.read_text().splitlines()[0])
    again = {**first, "attempt": 2, "outcome": "failed", "error": "it fell over"}
    file.write_text(file.read_text() + json.dumps(again) + "\n" + '{"trial_id": "cut o')
    loaded = load_run(folder)
    assert len(loaded.trials) == 36
    assert loaded.attempts == 37
    assert loaded.trials[0].record.error == "it fell over"
    counts = evidence_tables.counts_table(loaded).set_index("trials")["number"]
    assert (counts["tried again"], counts["without an answer"]) == (1, 1)


def test_treatments_are_labelled_in_the_order_of_the_factors_whatever_the_file_has(
    run: Run,
) -> None:
    assert next(iter(run.trials[0].record.treatment)) == "cage"
    names = set(frames.trial_frame(run)["treatment"])
    assert "tenth · unloaded · random" in names


def test_the_twelve_cells_stand_as_in_the_article(run: Run) -> None:
    table = main_table(run)
    assert table.columns == ("cage", "source", "sequential", "random")
    assert [row[0].text for row in table.rows] == ["uncaged", "", "", "tenth", "", ""]
    assert [row[1].text for row in table.rows] == ["heap", "resident", "unloaded"] * 2
    assert table.rows[3][2].text == "killed (killed)"
    assert re.fullmatch(r"≈ \S+ s \(1,013 s\)", table.rows[5][3].text)


def test_the_number_of_trials_is_stated_once_if_it_is_the_same_everywhere(
    run: Run, tmp_path: Path
) -> None:
    table = main_table(run)
    assert "medians; below, the range of 3 trials" in table.caption
    assert not any(re.search(r"\bn \d|range", cell.detail) for row in table.rows for cell in row)

    fails = where(UNCAGED, updated(outcome="not_prepared"), repeat=2)
    table = main_table(load_run(build_run(tmp_path / "run", fails)))
    assert "n 2" in table.rows[2][2].detail
    assert "n 3" not in table.rows[5][3].detail
    assert "below, the range of 3 trials unless noted" in table.caption


def test_changing_one_record_changes_its_cell_and_no_other(run: Run, tmp_path: Path) -> None:
    slower = where(UNCAGED, responding(full_pass_seconds=99.0), repeat=1)
    changed = main_table(load_run(build_run(tmp_path / "run", slower)))
    differing = [
        (place, number)
        for place, (one, other) in enumerate(zip(changed.rows, main_table(run).rows, strict=True))
        for number, pair in enumerate(zip(one, other, strict=True))
        if (pair[0].text, pair[0].detail) != (pair[1].text, pair[1].detail)
    ]
    assert differing == [(2, 2)]


def test_an_excluded_trial_is_counted_and_not_averaged_in(tmp_path: Path) -> None:
    def slow_and_warm(record: Json) -> None:
        warm(record)
        record["response"]["full_pass_seconds"] = 1e6

    change = where(UNCAGED, slow_and_warm, repeat=1)
    changed = load_run(build_run(tmp_path / "run", change))
    cell = make_cell(changed, UNCAGED, changed.response)
    assert cell.summary is not None
    assert cell.summary.n == 2
    assert cell.summary.high < 1
    assert "1 excluded" in cell.spread
    reasons = evidence_tables.excluded_table(changed)
    assert list(reasons["trial"]) == ["uncaged · unloaded · sequential"]
    assert "cache state not reached" in reasons.iloc[0]["reason"]


@pytest.mark.parametrize(
    ("change", "unanswered", "text"),
    [
        (warm, 0, r"\(.*†"),
        (updated(outcome="not_prepared"), 3, "–"),
    ],
    ids=["excluded trials alone are in brackets", "without answers there is no figure"],
)
def test_a_cell_without_included_trials(
    tmp_path: Path, change: Change, unanswered: int, text: str
) -> None:
    loaded = load_run(build_run(tmp_path / "run", where(UNCAGED, change)))
    cell = make_cell(loaded, UNCAGED, loaded.response)
    assert re.fullmatch(text, cell.text)
    assert cell.unanswered == unanswered


def test_why_the_host_could_not_run_trials_is_written_once_below_the_table(
    tmp_path: Path,
) -> None:
    def unable(record: Json) -> None:
        lacks = {"uncaged": "fio is not installed", "tenth": "the kernel refuses io_uring"}
        if record["treatment"]["pattern"] == "random":
            reason = lacks[record["treatment"]["cage"]]
            missed = {"requirement": "workload", "reason": reason, "hint": ""}
            record |= {"outcome": "requirement_missed", "response": {}, "measured": None}
            record["missed_requirements"] = [missed]

    table = main_table(load_run(build_run(tmp_path / "run", unable)))
    assert table.footnotes == (
        "¹ the host lacks a requirement: fio is not installed",
        "² the host lacks a requirement: the kernel refuses io_uring",
    )
    assert all(row[3].text.startswith("– ¹") for row in table.rows[:3])
    assert all(row[3].text.startswith("– ²") for row in table.rows[3:])
    assert not any("requirement" in cell.detail for row in table.rows for cell in row)
    report = Report("", (table,))
    for text in (block_table_html(table), to_markdown(report), terminal_text(report, whole=True)):
        assert text.count("fio is not installed") == 1


def test_any_experiment_has_a_table(tmp_path: Path) -> None:
    definition = {**DEFINITION, "factors": {"pattern": ["sequential", "random"]}, "claims": []}

    def fewer(record: Json) -> None:
        record["treatment"] = {"pattern": record["treatment"]["pattern"]}

    trials = json.loads((build_run(tmp_path / "a") / "plan.json").read_text())["trials"]
    for trial in trials:
        fewer(trial)
    loaded = load_run(build_run(tmp_path / "b", fewer, definition=definition, trials=trials))
    assert len(list(treatments(loaded))) == 2
    assert [len(row) for row in main_table(loaded).rows] == [3, 3]
    assert evidence_tables.claims_table(loaded).empty


def test_the_limits_table_has_cap_calibration_and_use(run: Run) -> None:
    table = evidence_tables.limits_table(run).set_index("limit")
    assert table.loc["MemoryMax", "cap"] == "12.8 MiB"
    assert "12 enforced" in str(table.loc["MemoryMax", "verdicts"])


def test_series_frames_count_from_go(run: Run) -> None:
    fine, coarse = (
        of_caged_random(frame)[of_caged_random(frame)["seconds"].between(2, 12)]
        for frame in (frames.trace_frame(run), frames.iostat_frame(run))
    )
    rate = fine["read_bytes_per_second"].median()
    assert rate == pytest.approx(28.4 * PAGES * 4096 / 31, rel=0.2)
    assert coarse["read_bytes_per_second"].median() == pytest.approx(rate, rel=0.1)


def test_an_iostat_second_is_drawn_in_its_middle(tmp_path: Path) -> None:
    def to_the_second(record: Json) -> None:
        if record["measured"]:
            record["measured"]["start_wall_seconds"] = 1_795_000_000.0

    folder = build_run(tmp_path / "run", to_the_second)

    def stamped(data: Json) -> None:
        first = data["sysstat"]["hosts"][0]["statistics"][0]
        first["timestamp"] = "2026-11-18T11:06:43+0000"  # 1795000003

    for file in folder.glob("trials/*tenth-unloaded-random*/iostat.json"):
        edit(file, stamped)
    coarse = of_caged_random(frames.iostat_frame(load_run(folder)))
    assert set(coarse.groupby("trial_id")["seconds"].first()) == {2.5}


def test_readahead_counts_only_what_grew_after_go(tmp_path: Path) -> None:
    folder = build_run(tmp_path / "run")
    plain = frames.readahead_frame(load_run(folder))
    before_go = [{"pages": 256, "count": 516}, {"pages": 32, "count": 1000}]
    for file in folder.glob("trials/*/bpftrace.jsonl"):
        edit(file, lambda row: row["page_cache_ra_order"].extend(before_go))
    shifted = frames.readahead_frame(load_run(folder))
    assert 256 not in set(shifted["pages"])
    assert len(plain) > 0
    merged = plain.merge(shifted, on=["trial_id", "pages"], suffixes=("", "_shifted"))
    assert (merged["count"] == merged["count_shifted"]).all()


def test_faults_are_counted_by_the_flags_of_the_mapping(run: Run) -> None:
    table = evidence_tables.fault_table(frames.fault_frame(run))
    [flags] = set(table["flags of the mapping"])
    assert flags == "VM_READ VM_MAYREAD VM_MAYEXEC VM_MAYSHARE VM_SOFTDIRTY"


def test_a_run_without_traces_has_empty_frames(tmp_path: Path) -> None:
    loaded = load_run(build_run(tmp_path / "run", updated(traces={})))
    for name in ("trace", "iostat", "vmtouch", "readahead", "fault"):
        assert getattr(frames, f"{name}_frame")(loaded).empty
    assert evidence_tables.fault_table(frames.fault_frame(loaded)).empty


def test_an_incomplete_iostat_file_is_empty(tmp_path: Path) -> None:
    folder = build_run(tmp_path / "run")
    for file in folder.glob("trials/*/iostat.json"):
        file.write_text(file.read_text()[:-20])
    assert frames.iostat_frame(load_run(folder)).empty


def test_no_experiment_has_a_factor_with_the_name_of_a_column(run: Run) -> None:
    columns = set(frames.trial_frame(run)) - set(run.factors)
    named = {
        name: set(read["factors"]) & columns
        for name, read in read_definitions(ROOT / "experiments").items()
    }
    assert not [name for name, clash in named.items() if clash]


def test_restored_data_are_told(tmp_path: Path) -> None:
    def restored(record: Json) -> None:
        copied = 2**20 if record["position"] else 2**25
        how = {"method": "copy", "changed_files": 1, "seconds": 0.5, "copied_bytes": copied}
        data = {"directory": "/data/x", "entries": 5, "size_bytes": 2**25, "restored": how}
        record["data"] = {**data, "manifest_sha256": "a" * 64}

    loaded = load_run(build_run(tmp_path / "run", restored))
    made = evidence_tables.making_table(loaded).set_index("what")["value"]
    assert made["data"] == (
        "32 MiB in 5 entries, restored before 36 trials by copy, later with at most 1 MiB written"
    )
    assert made["data, SHA-256 of the manifest"] == "a" * 64


def test_a_run_without_prepared_data_has_no_row_for_them(run: Run) -> None:
    assert "data" not in set(evidence_tables.making_table(run)["what"])
