"""Findings, and answers to open questions."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from analysis.articles.findings import Finding, evaluate_findings, open_questions
from analysis.articles.pages import answers_report
from analysis.articles.scorecard import newest_runs
from analysis.data.frames import trial_frame
from analysis.data.load import Run, load_run
from analysis.figures import charts, style
from analysis.figures.latencies import latency_figures, latency_frame, percentile_responses
from analysis.figures.style import numeric_factor, treatment_styles
from analysis.formatting import format_quantity, format_range
from analysis.views import notebook
from pagecage.model.json_codec import Json
from pagecage.model.published_figures import read_definitions
from pagecage.report.model import to_markdown
from tests.builders.command_line import called
from tests.builders.record_changes import updated, warm, where
from tests.builders.swept_runs import swept
from tests.fixtures.records import outer
from tests.fixtures.runs import DEFINITION, Change, build_run
from tests.tree import ROOT

CAGED = {"cage": "tenth", "source": "unloaded", "pattern": "random"}
FREE = {**CAGED, "cage": "uncaged"}


def found(tmp_path: Path, table: Json, change: Change | None = None) -> tuple[Finding, Run]:
    finding = {"question": "Q24", "says": "It is {value} of it.", **table}
    definition = {**DEFINITION, "findings": [finding]}
    run = load_run(build_run(tmp_path / "run", change, definition=definition))
    return evaluate_findings(run)[0], run


def test_a_figure_stands_in_its_sentence_with_unit_interval_and_number(tmp_path: Path) -> None:
    finding, _ = found(tmp_path, {"response": "amplification", "where": CAGED})
    assert finding.sentence == "It is 28.4× (28.4 – 28.4×, n 3) of it."
    assert finding.middle == pytest.approx(28.4, abs=0.05)
    assert finding.n == 3
    assert "extrapolated" not in finding.note


def test_two_sides_are_a_ratio_with_its_limitations(tmp_path: Path) -> None:
    finding, _ = found(tmp_path, {"response": "full_pass_seconds", "where": CAGED, "over": FREE})
    assert str(finding.value).startswith("23")
    assert "emulated CPU" in finding.note
    assert "extrapolated" in finding.note


def test_a_sentence_with_the_word_times_has_no_multiplication_sign(tmp_path: Path) -> None:
    table = {"response": "amplification", "where": CAGED, "over": FREE}
    table["says"] = "It takes {value} times as long."
    assert found(tmp_path, table)[0].sentence == "It takes 28.4 (28.4 – 28.4, n 3) times as long."


def test_a_finding_without_a_figure_states_the_reason(tmp_path: Path) -> None:
    finding, run = found(tmp_path, {"response": "heartbeat_p999_us", "where": CAGED})
    assert (finding.value, finding.sentence) == (None, "It is … of it.")
    assert finding.note == "no trial of it has a figure"
    assert "Not measured: no trial of it has a figure." in notebook.answer_html(run)
    table = run.definition["findings"][0]
    both = replace(
        run, plan={**run.plan, "definition": {**run.definition, "findings": [table] * 2}}
    )
    assert "no trial of it has a figure. (2 findings)</summary>" in notebook.answer_html(both)
    gone, _ = found(tmp_path / "b", {"response": "x", "where": {"cage": "gone"}})
    assert gone.note == "size emulated leaves its treatment out"


def test_a_figure_of_excluded_trials_alone_stands_in_brackets_and_proves_nothing(
    tmp_path: Path,
) -> None:
    excluded = where(CAGED, warm)
    finding, _ = found(tmp_path, {"response": "amplification", "where": CAGED}, excluded)
    assert finding.value == "(28.4× (28.4 – 28.4×, n 3)) †"
    assert not finding.is_proven
    assert "excluded trials alone" in finding.note
    flags, _ = found(tmp_path / "flags", {"response": "vm_flags", "where": CAGED}, excluded)
    assert flags.value is None


def test_flags_that_a_kernel_passes_do_not_depend_on_host_noise(tmp_path: Path) -> None:
    def disturbed(record: Json) -> None:
        if record["treatment"] == CAGED:
            record["outer_host"]["after"] = outer(record["measured"]["seconds"], others=9.0)

    flags, run = found(tmp_path, {"response": "vm_flags", "where": CAGED}, disturbed)
    assert not any(
        trial.is_included for trial in run.trials if dict(trial.record.treatment) == CAGED
    )
    assert "READ" in str(flags.value)
    assert flags.is_proven


def test_a_host_that_lacks_something_is_named(tmp_path: Path) -> None:
    missed = {"requirement": "io_uring", "reason": "the kernel <refuses> io_uring"}
    end = updated(outcome="requirement_missed", response={}, missed_requirements=[missed])
    lacks = where(CAGED, end)
    finding, run = found(tmp_path, {"response": "amplification", "where": CAGED}, lacks)
    assert finding.note == "the host lacks a requirement: the kernel <refuses> io_uring"
    notices = notebook.notices_html(run)
    assert "could not run 3 of 36 trials" in notices
    assert "the kernel &lt;refuses&gt; io_uring<small>tenth · unloaded · random</small>" in notices
    assert "Unfinished" not in notices


def test_outcomes_and_what_the_kernel_did_are_words(tmp_path: Path) -> None:
    heap = {"cage": "tenth", "source": "heap"}
    killed, _ = found(tmp_path / "a", {"response": "outcome", "where": heap})
    assert killed.value == "killed 6 of 6 times"
    flags, _ = found(tmp_path / "b", {"response": "vm_flags", "where": CAGED})
    assert "READ" in str(flags.value)


def test_an_experiment_without_findings_has_no_answer(tmp_path: Path) -> None:
    assert notebook.answer_html(load_run(build_run(tmp_path / "run"))) == ""


@pytest.mark.parametrize(
    ("response", "value", "text"),
    [
        ("heartbeat_p999_us", 2500, "2.5 ms"),
        ("heartbeat_p50_us", 52, "52 us"),
        ("read_seconds", 0.0312, "31.2 ms"),
        ("read_seconds", 0, "0 s"),
        ("resident_pages", 1234, "1,234 pages"),
    ],
)
def test_small_times_are_formatted_readably(response: str, value: float, text: str) -> None:
    assert format_quantity(response, value) == text


def test_a_range_has_its_unit_once() -> None:
    assert format_range("28×", "35×") == "28 – 35×"


def test_percentiles_are_found_by_their_names_with_the_share_that_is_slower() -> None:
    names = ["fio_p50_us", "fio_p999_us", "beat_p99_us", "read_seconds", "x_max_us"]
    shares = pytest.approx({"fio_p50_us": 0.5, "fio_p999_us": 0.001}, abs=5e-7)
    assert percentile_responses(names) == {"fio_us": shares}


def curve_axes(run: Run) -> Axes | None:
    styles = treatment_styles(run)
    figure = charts.curve_figure(run, trial_frame(run), "full_pass_seconds", styles)
    return figure.axes[0] if figure else None


def test_only_a_numeric_factor_has_a_curve(tmp_path: Path) -> None:
    assert curve_axes(load_run(build_run(tmp_path / "plain"))) is None
    run = swept(tmp_path)
    assert numeric_factor(run) == ("pattern", {"4KiB": 4096.0, "64KiB": 65536.0})
    axes = curve_axes(run)
    assert axes is not None
    assert {line.get_label() for line in axes.lines} == {
        "uncaged · heap",
        "uncaged · resident",
        "uncaged · unloaded",
        "tenth · resident",
        "tenth · unloaded",
    }
    assert all(np.array_equal(line.get_xdata(), [4096.0, 65536.0]) for line in axes.lines)


def test_latencies_have_a_figure_where_there_are_percentiles(tmp_path: Path) -> None:
    plain = load_run(build_run(tmp_path / "plain"))
    assert latency_figures(trial_frame(plain), latency_frame(plain), treatment_styles(plain)) == {}
    run = swept(tmp_path)
    drawn = latency_figures(trial_frame(run), latency_frame(run), treatment_styles(run))
    assert list(drawn) == ["beat"]
    [first, *_] = drawn["beat"].axes[0].lines
    assert np.round(np.asarray(first.get_ydata())).tolist() == [60, 400, 2000]


def test_too_many_lines_are_coloured_by_the_factor_that_explains_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(style, "MOST_GROUPS", 3)
    axes = curve_axes(swept(tmp_path))
    assert axes is not None
    colours = {
        str(line.get_label()).split(" · ")[1]: line.get_color()
        for line in axes.lines
        if str(line.get_label()).startswith("uncaged")
    }
    assert len(set(colours.values())) == len(colours) == 3
    assert {line.get_color() for line in axes.lines} == set(colours.values())
    looks = {(line.get_color(), line.get_marker()) for line in axes.lines}
    assert len(looks) == len(axes.lines) > 3


EXPERIMENTS = ROOT / "experiments"
NAME = "20261121T100000Z-constrained-random-vm"
FINDING = {
    "question": "Q24",
    "says": "At random {value} is read for each byte",
    "response": "amplification",
    "where": CAGED,
}


def build_runs(folder: Path, change: Change | None = None) -> Path:
    """Build a folder with one run, whose definition has one finding."""
    build_run(folder / NAME, change, definition={**DEFINITION, "findings": [FINDING]})
    (folder / "latest-constrained-random").symlink_to(NAME)
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return build_runs(tmp_path)


def test_every_question_of_a_definition_is_asked_and_every_asked_one_has_a_number() -> None:
    asked = [answer.id for answer in open_questions(EXPERIMENTS, {}).questions]
    assert asked == [f"Q{number:02}" for number in range(1, 39)]
    used = {
        found["question"]
        for table in read_definitions(EXPERIMENTS).values()
        for found in table.get("findings", [])
        if found.get("question")
    }
    assert used <= set(asked)


def test_without_runs_every_question_is_open() -> None:
    found = open_questions(EXPERIMENTS, newest_runs(Path("nowhere")))
    assert all(answer.is_open for answer in found.questions)
    assert to_markdown(answers_report(found)).count("Open: no run here has answered it.") == 38


def test_a_proven_figure_answers(runs: Path) -> None:
    found = open_questions(EXPERIMENTS, newest_runs(runs))
    [answer] = [answer for answer in found.questions if not answer.is_open]
    assert answer.id == "Q24"
    page = to_markdown(answers_report(found))
    assert re.search(r"^\* At random \d[\d.]*× .*is read for each byte", page, re.MULTILINE)
    assert f"| constrained-random | {NAME} |" in page


def test_an_excluded_figure_answers_nothing(tmp_path: Path) -> None:
    runs = build_runs(tmp_path, where({"source": "unloaded"}, warm))
    found = open_questions(EXPERIMENTS, newest_runs(runs))
    assert all(answer.is_open for answer in found.questions)
    assert "At random" not in to_markdown(answers_report(found))


def test_a_smoke_run_hides_no_larger_one(runs: Path) -> None:
    smoke = build_run(runs / "20261121T110000Z-constrained-random-vm", size="smoke")
    (runs / "latest-constrained-random").unlink()
    (runs / "latest-constrained-random").symlink_to(smoke.name)
    assert newest_runs(runs)["constrained-random"].path.name == NAME


def test_json_is_printed_alone(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(["articles", "answers", "--json", "--runs", str(runs)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 38
    assert [row["id"] for row in rows if not row["is_open"]] == ["Q24"]


def test_the_page_of_the_documents_asks_every_question() -> None:
    page = (ROOT / "docs/answers.md").read_text()
    for answer in open_questions(EXPERIMENTS, {}).questions:
        assert f"## {answer.id}: {answer.question}" in page
