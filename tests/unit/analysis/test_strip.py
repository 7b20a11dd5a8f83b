"""The top strip of a report: of stored runs, and of each kind of run; one screen of a terminal."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.comparison import compare
from analysis.data.load import Run, load_run
from analysis.results import COMPARISON, RUN
from analysis.strip import MOST_BARS, headline_tables, run_strip
from analysis.views.comparison import comparison_strip
from analysis.views.html import strip_html
from analysis.views.run import run_report
from pagecage.bundle.pack import SUFFIX
from pagecage.bundle.unpack import unpack
from pagecage.model.json_codec import Json
from pagecage.model.published_figures import read_definitions
from pagecage.report.model import Strip, to_markdown
from pagecage.report.terminal import MOST_LINES
from tests.builders import memory_runs
from tests.builders.record_changes import warm, where
from tests.builders.run_edits import edit
from tests.fixtures.runs import DEFINITION, build_run
from tests.fixtures.small_runs import NAMES, unpacked
from tests.tree import ROOT

RUNS = ROOT / "docs/runs"
STORED = sorted(path.name.removesuffix(SUFFIX) for path in RUNS.glob(f"*{SUFFIX}"))
FIGURE = re.compile(r"\d")


def bundled(name: str, folder: Path) -> Run:
    (bundle,) = (RUNS / f"{one}{SUFFIX}" for one in STORED if name in one)
    unpack(bundle, folder)
    return load_run(folder)


@pytest.fixture(scope="module")
def constrained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("strip") / "run"
    return bundled("20261124T074944Z-constrained-random", folder)


def test_a_report_answers_the_question_of_its_title(constrained: Run) -> None:
    strip = run_strip(constrained)
    assert re.fullmatch(
        r"Random reads with a tenth of the memory: 8\d× \(\d\d – \d\d×\) sequential;"
        r" 3\d× \(\d\d – \d\d×\) without the limit; 28\S* times the bytes needed are read",
        re.sub(r"28(\.\d)?( \([^)]*\))? times", "28 times", strip.result),
    ), strip.result
    assert re.match(r"5\d of 54 trials, n 3, real CPU", strip.trust)
    assert re.match(r"memory, .*\d+ % of the time", strip.limit)
    assert strip.is_proven
    assert strip.chart
    assert "tenth · unloaded · random" in strip.chart.labels


def test_the_strip_is_the_same_on_a_terminal_in_html_in_markdown(
    constrained: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    strip, report = run_strip(constrained), run_report(constrained)
    texts = [strip.result, *(text for _, text in strip.lines)]
    page, terminal, markdown = strip_html(strip), RUN.text(constrained, ""), to_markdown(report)
    for text in texts:
        assert all(text in shown for shown in (page, terminal, markdown)), text
    assert strip.chart
    assert all(label in page and label in terminal for label in strip.chart.labels)
    assert page.count('class="bar"') == len(strip.chart.labels)
    assert strip.chart.is_logarithmic
    assert "(log scale)" in page


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long) for n in STORED])
def test_every_stored_run_has_a_strip_and_fits_a_screen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack(RUNS / f"{name}{SUFFIX}", tmp_path / "run")
    fits(load_run(tmp_path / "run"), monkeypatch)


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_has_a_strip_and_fits_a_screen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits(load_run(unpacked(name, tmp_path / "run")), monkeypatch)


def fits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    strip = run_strip(run)
    assert FIGURE.search(strip.result), strip.result
    assert "{value}" not in strip.result
    assert re.match(rf"\d+ of {len(run.plan['trials'])} trials", strip.trust)
    for columns in ("80", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        text = RUN.text(run, "")
        assert len(text.splitlines()) <= MOST_LINES, text
        assert text.splitlines()[0] == run.plan["experiment"]
    assert len(RUN.text(run, "whole")) > len(text)


def test_every_experiment_names_its_headline() -> None:
    definitions = read_definitions(ROOT / "experiments")
    assert [name for name, one in definitions.items() if not one.get("headline")] == []


def changed(folder: Path, **definition: Any) -> Run:
    edit(folder / "plan.json", lambda plan: plan["definition"].update(definition))
    return load_run(folder)


def test_a_part_without_its_treatments_is_left_out(tmp_path: Path) -> None:
    part = {"says": "it takes {value}", "response": "full_pass_seconds"}
    there = {"cage": "tenth", "source": "unloaded", "pattern": "random"}
    parts = [{**part, "where": where} for where in ({"cage": "huge"}, there)]
    definition = {**DEFINITION, "headline": parts}
    run = load_run(build_run(tmp_path / "run", definition=definition))
    assert [one["where"] for one in headline_tables(run)] == [there]
    assert re.fullmatch(r"It takes ≈? ?\S+ s \(\S+ – \S+ s\)", run_strip(run).result)


def test_a_definition_without_a_headline_shows_its_extremes(tmp_path: Path) -> None:
    definition = {key: value for key, value in DEFINITION.items() if key != "headline"}
    definition["findings"] = []
    run = load_run(build_run(tmp_path / "run", experiment="other", definition=definition))
    assert headline_tables(run) == []
    result = run_strip(run).result
    assert result.startswith("Time for all data: ")
    assert "(uncaged · heap · sequential) to ≈ " in result
    assert re.search(r"\(tenth · unloaded · random\), [\d,]+×$", result)


def test_a_result_of_excluded_trials_alone_is_not_proven(tmp_path: Path) -> None:
    excluded = where({"source": "unloaded"}, warm)
    strip = run_strip(load_run(build_run(tmp_path / "run", excluded)))
    assert not strip.is_proven
    assert "†" in strip.result
    assert 'class="result unproven"' in strip_html(strip)
    assert strip.trust.startswith("24 of 36 trials")


KEPT = "-unloaded-random-"


def replayed(folder: Path, response: str, **workload: Any) -> Run:
    """Return a replay in a cage and without limits."""

    def change(record: Json) -> None:
        record["treatment"] = {"cage": record["treatment"]["cage"]}
        record["response"]["tps"] = 1000 if record["treatment"]["cage"] == "uncaged" else 250

    definition = {
        **DEFINITION,
        "response": response,
        "factors": {"cage": ["tenth", "uncaged"]},
        "claims": [],
        "workload": {**DEFINITION["workload"], **workload},
    }

    def reduced(plan: Json) -> None:
        plan["trials"] = [
            {**trial, "treatment": {"cage": trial["treatment"]["cage"]}}
            for trial in plan["trials"]
            if KEPT in trial["trial_id"]
        ]

    build_run(folder, change, definition=definition, replay={"typed": ["x"]})
    edit(folder / "plan.json", reduced)
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    kept = (line for line in lines if KEPT in json.loads(line)["trial_id"])
    (folder / "records.jsonl").write_text("".join(kept))
    return load_run(folder)


def test_a_replay_is_compared_with_its_control(tmp_path: Path) -> None:
    strip = run_strip(replayed(tmp_path / "run", "full_pass_seconds"))
    assert re.fullmatch(
        r"≈? ?\S+ s \(\S+ – \S+ s\) in tenth; \S+× \(\S+ – \S+×\) the .+ s without limits",
        strip.result,
    ), strip.result
    assert strip.chart
    assert strip.chart.labels == ("tenth", "uncaged")


def test_of_a_service_its_rate_is_shown_with_its_unit(tmp_path: Path) -> None:
    run = replayed(tmp_path / "run", "tps", kind="service", metrics={"tps": "(.)"})
    assert run_strip(run).result == (
        "250 tps (250 – 250 tps) in tenth; 0.25× (0.25 – 0.25×) the 1,000 tps without limits"
    )


def test_a_sweep_names_its_knee_and_shows_its_values(tmp_path: Path) -> None:
    strip = run_strip(load_run(unpacked("sweep-customer-replay", tmp_path / "run")))
    assert strip.result == ("Fewer than two values have a time; 17.2 s at 125, 4.62 s at 4000")
    assert not strip.is_proven, "its trials are all excluded"
    assert strip.chart
    assert strip.chart.title == "time by IOReadIOPSMax"
    assert strip.chart.labels[0] == "125"


def test_a_search_for_memory_begins_with_its_answer(tmp_path: Path) -> None:
    run = load_run(memory_runs.stored(tmp_path / "run"))
    strip = run_strip(run)
    assert strip.result.endswith("are page cache that brings no time")
    assert strip.chart
    assert strip.chart.labels[0] == "all"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Run, Run]]:
    def slower(record: Json) -> None:
        if record["response"]:
            record["response"]["full_pass_seconds"] *= 1.3

    first = build_run(tmp_path / "20260101T000000Z-a-vm", repeats=8)
    second = build_run(tmp_path / "20260102T000000Z-b-vm", slower, repeats=8)
    yield load_run(first), load_run(second)
    shutil.rmtree(tmp_path)


def test_a_comparison_begins_with_the_change_over_all_treatments(
    pair: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = compare(pair)
    strip = comparison_strip(compared)
    assert re.match(r"Time for all data, B: 1\.3\S*× \(1\.\S+ – 1\.\S+×\) of A; ", strip.result)
    assert "higher in " in strip.result
    assert strip.trust.startswith("A: 96 of 96 trials; B: 96 of 96 trials")
    monkeypatch.setenv("COLUMNS", "100")
    assert len(COMPARISON.text(compared, "").splitlines()) <= MOST_LINES
    assert "Differences" not in COMPARISON.text(compared, "")
    assert "Differences" in COMPARISON.text(compared, "whole")


def test_at_most_eight_bars_with_the_least_and_the_greatest(tmp_path: Path) -> None:
    run = load_run(unpacked("append-fsync", tmp_path / "run"))
    chart = run_strip(changed(tmp_path / "run", headline=[], findings=[])).chart
    assert chart
    assert len(chart.labels) == MOST_BARS < len(run.plan["trials"])


def test_a_claim_is_one_line_on_the_first_screen(constrained: Run) -> None:
    text = RUN.text(constrained, "")
    assert re.search(
        r"published figures: \d+ held, .*pagecage show \S+ --claims", " ".join(text.split())
    )
    assert "003-191" not in text


def test_a_strip_without_figures_is_a_line() -> None:
    assert strip_html(Strip("nothing")) == (
        '<div class="strip"><p class="result">nothing</p><dl></dl></div>\n'
    )
