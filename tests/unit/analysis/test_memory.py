"""The report of a search for memory: its answer, its steps and its curve."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.data.load import load_run
from analysis.figures.over_limits import memory_figure
from analysis.figures.style import drawing_style
from analysis.memory import (
    MemoryRun,
    memory_alt_text,
    memory_json,
    memory_points,
    memory_run,
    step_rows,
)
from analysis.views.run import as_json, run_report
from pagecage.errors import PagecageError
from pagecage.memory_search.rounds import SECOND_OPINION
from pagecage.report.model import Paragraph, Table
from tests.builders.memory_runs import USED, WORKING_SET, document, recorded, run_all, stored
from tests.fixtures.records import make_record
from tests.fixtures.runs import build_run


def searched(path: Path) -> MemoryRun:
    found = memory_run(load_run(path))
    assert found is not None
    return found


def test_the_first_sentence_is_the_answer(tmp_path: Path) -> None:
    found = searched(stored(tmp_path / "run"))
    assert found.sentences[0].endswith("are page cache that brings no time.")
    assert found.sentences[1].startswith("Working set (no refaults): 40.")


def test_the_report_begins_with_it_and_has_the_steps(tmp_path: Path) -> None:
    path = stored(tmp_path / "run")
    report = run_report(load_run(path))
    blocks = (*report.blocks, *report.rest)
    texts = [block.text for block in blocks if isinstance(block, Paragraph)]
    found = searched(path)
    assert set(found.sentences) < set(texts)
    assert texts.index(found.sentences[0]) < 4
    tables = [block for block in report.blocks if isinstance(block, Table)]
    assert tables[0].columns[0] == "MemoryMax"
    assert len(tables[0].rows) == len(found.steps)


def test_the_steps_are_the_reference_and_then_smaller_and_smaller_limits(tmp_path: Path) -> None:
    found = searched(stored(tmp_path / "run"))
    first, *others = found.steps
    assert (first.limit_bytes, first.trials, first.peak_bytes) == (None, 3, USED)
    limits = [step.limit_bytes or 0 for step in others]
    assert limits == sorted(limits, reverse=True)
    for step in others:
        is_enough = (step.limit_bytes or 0) >= WORKING_SET
        assert set(step.states.values()) == ({"enough"} if is_enough else {"short"})
        assert bool(step.refaults) is not is_enough
    rows = step_rows(found)
    assert rows[0]["MemoryMax"] == "none"
    assert [row["enough"] for row in rows[1:]] == [
        "yes" if limit >= WORKING_SET else "not for time and refaults" for limit in limits
    ]


def test_columns_without_figures_are_left_out(tmp_path: Path) -> None:
    found = searched(stored(tmp_path / "run"))
    assert not {"anonymous", "OOM kills"} & set(step_rows(found)[0])
    killed = replace(found.steps[-1], oom_kills=1)
    assert "OOM kills" in step_rows(replace(found, steps=(*found.steps[:-1], killed)))[0]


def test_json_has_the_answer_and_the_steps(tmp_path: Path) -> None:
    run = load_run(stored(tmp_path / "run"))
    found = json.loads(json.dumps(as_json(run)))["memory"]
    assert set(found) == {"rule", "sentences", "answer", "second_opinion", "page_bytes", "steps"}
    assert {need["criterion"] for need in found["answer"]["needs"]} == {"time", "refaults"}
    assert memory_json(load_run(build_run(tmp_path / "other"))) is None


def test_the_curve_marks_both_needs(tmp_path: Path) -> None:
    found = searched(stored(tmp_path / "run"))
    with drawing_style():
        figure = memory_figure(found)
    assert figure is not None
    marks = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert len(marks) == 2
    assert all(mark.startswith("needed: 40.") for mark in marks)
    sizes = [size for size, _ in memory_points(found)]
    assert sizes == sorted(sizes)
    assert sizes[-1] == USED
    assert "Time and refaults over MemoryMax" in memory_alt_text(found)
    assert memory_figure(replace(found, steps=found.steps[:1])) is None


def test_damon_is_cited_or_the_reason_why_it_is_not(tmp_path: Path) -> None:
    last = run_all(document())
    trace = "trials/damon.1/damon.jsonl"
    seen = replace(last[SECOND_OPINION], traces={"damon": trace})
    path = stored(tmp_path / "seen", {**last, SECOND_OPINION: seen})
    (path / trace).parent.mkdir(parents=True)
    begin = seen.measured.start_monotonic_seconds if seen.measured else 0.0
    counts = [(-1.0, 7 * USED), (1.0, 0), (2.0, WORKING_SET), (3.0, WORKING_SET), (4.0, USED)]
    lines = (json.dumps({"t": begin + t, "bytes": count}) + "\n" for t, count in counts)
    (path / trace).write_text("".join(lines))
    found = searched(path)
    told = "touched 40 MiB within half a second through its mappings (median of 3 intervals; at"
    assert any(told in sentence for sentence in found.sentences)

    missing = {"damon": {"status": "missing", "reason": "the kernel has none", "lost_events": None}}
    without = replace(last[SECOND_OPINION], collectors=missing)
    found = searched(stored(tmp_path / "none", {**last, SECOND_OPINION: without}))
    assert "No second opinion by DAMON: the kernel has none." in found.sentences


def test_without_a_reference_that_counts_nothing_is_said(tmp_path: Path) -> None:
    plan = document()
    killed = make_record(outcome="oom_killed", measured=None, response={})
    last = {
        trial["trial_id"]: replace(recorded(trial), outcome="oom_killed", counters=killed.counters)
        for trial in plan["trials"]
    }
    found = searched(stored(tmp_path / "run", last))
    assert found.answer is None
    assert len(found.sentences) == 1


def test_files_that_nobody_made_cold_are_a_caveat(tmp_path: Path) -> None:
    plan = document()
    for trial in plan["trials"]:
        trial["workload"]["command"]["data_paths"] = []
    found = searched(stored(tmp_path / "run", trials=plan["trials"]))
    assert "No files were made cold (--cold)" in found.sentences[-1]


@pytest.mark.parametrize("rule", [{}, {"floor_bytes": "much"}, 7])
def test_a_rule_that_is_none_is_a_sentence(tmp_path: Path, rule: object) -> None:
    last = run_all(document())
    path = stored(tmp_path / "run", last, memory_search={"rule": rule})
    with pytest.raises(PagecageError, match="search for memory cannot be repeated"):
        load_run(path)
