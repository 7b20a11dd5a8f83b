"""Runs as data frames, found by path, id and name."""

from __future__ import annotations

import csv
import gc
import shutil
import sys
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

import analysis
from analysis.articles.evaluate import evaluate_claims
from analysis.articles.scorecard import scorecard
from analysis.cells import make_cell, treatments
from analysis.run_frames import RunFrames, bundles_of, find_run
from analysis.views.run import as_csv
from pagecage.bundle.pack import SUFFIX, pack
from pagecage.errors import PagecageError
from pagecage.process import run as run_process
from tests.fixtures.runs import DEFINITION, ROOT, build_run
from tests.fixtures.small_runs import FOLDER

RUN_ID = "20260101T000000Z-constrained-random-vm"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_run(tmp_path_factory.mktemp("runs") / RUN_ID)


@pytest.fixture(scope="module")
def run(folder: Path) -> RunFrames:
    return analysis.load(folder)


@pytest.fixture(scope="module")
def bundles(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bundle of two experiments each, of which one has a name of its own."""
    found = tmp_path_factory.mktemp("bundles")
    pack(folder, found / f"{RUN_ID}{SUFFIX}")
    shutil.copy(FOLDER / f"smoke{SUFFIX}", found / f"20260101T000000Z-smoke-vm{SUFFIX}")
    shutil.copy(FOLDER / f"prefault{SUFFIX}", found / f"mine{SUFFIX}")
    return found


def test_the_package_is_light_until_a_run_is_loaded_and_draws_nothing_then(folder: Path) -> None:
    program = (
        "import sys, analysis; heavy = {'pandas', 'matplotlib'}; print(heavy & set(sys.modules));"
        "run = analysis.load(sys.argv[1]); print(len(run.trial_df), 'matplotlib' in sys.modules)"
    )
    printed = run_process([sys.executable, "-c", program, folder], cwd=ROOT).stdout
    assert printed.split() == ["set()", "36", "False"]


def test_a_run_is_found_by_path_by_id_and_by_experiment(folder: Path, bundles: Path) -> None:
    bundle = bundles / f"{RUN_ID}{SUFFIX}"
    assert find_run(folder) == folder
    assert find_run(str(bundle)) == bundle
    assert find_run(RUN_ID, bundles) == bundle
    assert find_run("constrained-random", bundles) == bundle
    with pytest.raises(PagecageError, match="there is no run 'constrained'"):
        find_run("constrained", bundles)


def test_a_run_made_here_comes_before_a_stored_one(
    folder: Path, bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.run_frames.STORED", bundles)
    monkeypatch.setattr("analysis.run_frames.RUNS", folder.parent)
    stored = bundles / f"{RUN_ID}{SUFFIX}"
    assert find_run("constrained-random") == stored
    assert find_run(RUN_ID) == folder
    latest = folder.parent / "latest-constrained-random"
    latest.symlink_to(folder)
    assert find_run("constrained-random") == latest
    assert find_run("constrained-random", bundles) == stored
    latest.unlink()


def test_a_bundles_files_are_there_as_long_as_its_frames(bundles: Path) -> None:
    loaded = analysis.load("constrained-random", bundles=bundles)
    path = loaded.run.path
    assert len(loaded.trace_df) > 100
    assert path.is_dir()
    del loaded
    gc.collect()
    assert not path.parent.exists()


def test_a_median_is_that_of_the_table_with_its_interval_and_numbers(run: RunFrames) -> None:
    frame = run.medians()
    planned = list(treatments(run.run))
    assert len(frame) == len(planned) == 12
    for treatment, (_, row) in zip(planned, frame.iterrows(), strict=True):
        cell = make_cell(run.run, treatment, run.response)
        assert row[list(treatment)].to_dict() == treatment
        assert (row["killed"], row["excluded"]) == (cell.killed, cell.excluded)
        if cell.summary is None:
            assert row[["median", "low", "high"]].isna().all()
        else:
            found = (row["median"], row["low"], row["high"], row["kind"], row["n"])
            one = cell.summary
            assert found == (one.middle, one.low, one.high, one.kind, one.n)
    assert frame["median"].notna().sum() == 10, "two treatments are killed"


def test_the_frame_and_csv_of_a_run_are_the_same(run: RunFrames) -> None:
    rows = list(csv.DictReader(StringIO(as_csv(run.run))))
    frame = run.medians()
    assert list(rows[0]) == list(frame)
    medians = [row["median"] for row in rows if row["median"]]
    assert medians == [str(value) for value in frame["median"].dropna()]


def test_levels_keep_the_order_of_the_definition_in_a_pivot(run: RunFrames) -> None:
    wide = run.medians().pivot(index=["cage", "source"], columns="pattern", values="median")
    assert list(wide.columns) == DEFINITION["factors"]["pattern"]
    assert list(wide.index.get_level_values("source").unique()) == DEFINITION["factors"]["source"]


def test_a_ratio_is_that_of_the_claim_about_the_same_sides(run: RunFrames) -> None:
    results = {one.id: one for one in evaluate_claims(run.run)}
    compared = 0
    for claim in DEFINITION["claims"]:
        over, result = claim.get("over"), results[claim["id"]]
        is_ratio = claim["rule"] in ("ratio", "ordering") and result.measured is not None
        if not over or not is_ratio or not set(over) == set(claim["where"]) == set(run.factors):
            continue
        (_, row), *others = run.ratios(claim["where"], over, claim["response"]).iterrows()
        assert not others
        assert (row["ratio"], row["low"], row["high"], row["n"]) == (
            result.measured, result.low, result.high, result.n
        )  # fmt: skip
        compared += 1
    assert compared >= 2


def test_ratios_have_a_row_for_each_level_of_the_other_factors(run: RunFrames) -> None:
    found = run.ratios({"cage": "tenth"}, {"cage": "uncaged"})
    assert list(found) == ["source", "pattern", "ratio", "low", "high", "kind", "n"]
    assert len(found) == 4, "the heap is killed in the cage"
    slowest = found.sort_values("ratio").iloc[-1]
    assert (slowest["source"], slowest["pattern"]) == ("unloaded", "random")
    assert slowest["low"] <= slowest["ratio"] <= slowest["high"]
    assert run.ratios({"cage": "none"}, {"cage": "uncaged"}).empty


def test_about_names_the_run_and_how_much_of_it_counts(run: RunFrames) -> None:
    values = run.about["value"]
    assert values["run"] == RUN_ID
    assert values["trials included"] == sum(trial.is_included for trial in run.run.trials)


def test_a_bundle_of_another_experiment_is_left_out_by_its_name(bundles: Path) -> None:
    own, smoke, other = sorted(bundles.iterdir())
    assert bundles_of(bundles, ["constrained-random"]) == [own, other]
    assert bundles_of(bundles, ["smoke", "none"]) == [smoke, other], "its name tells nothing"
    with pytest.raises(PagecageError, match="is not a folder"):
        bundles_of(other, ["smoke"])


def test_an_articles_frame_has_its_figures_as_the_scorecard_scores_them(
    run: RunFrames, bundles: Path
) -> None:
    frame = analysis.claims("003", bundles)
    card = scorecard(ROOT / "experiments", {"constrained-random": run.run})
    rows = {row.id: row for row in card.rows if row.id.startswith("003-")}
    assert set(frame["id"]) == set(rows)
    tested = frame[frame["experiment"] == "constrained-random"].set_index("id")
    assert tested["measured"].notna().sum() >= 8
    for id_, row in tested.iterrows():
        assert row["verdict"] == rows[str(id_)].verdict
        assert row["measured"] == rows[str(id_)].measured or pd.isna(row["measured"])
    assert frame["condition"].str.len().min() > 0


def test_an_unknown_article_names_the_known_ones(bundles: Path) -> None:
    with pytest.raises(PagecageError, match="there is no article '7'") as raised:
        analysis.claims("7", bundles)
    assert raised.value.hint == "one of 000, 001, 002, 003, 004"
