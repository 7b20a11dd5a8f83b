"""The pages that are generated from the bundles in docs/runs."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from analysis import results
from analysis.articles.ratios import hosted_scorecard
from analysis.articles.scorecard import FILE, read_deviations, unexplained
from analysis.data.load import Run, bundled_runs
from analysis.volumes import read_checks
from pagecage.bundle.pack import SUFFIX
from pagecage.model.published_figures import read_rows, read_titles
from pagecage.process import run
from reliability.campaign import PAGE as TRUST
from reliability.page import page as trust_page
from tests.builders.command_line import called
from tests.tree import ROOT

BUNDLES = ROOT / "docs/runs"
ROWS = read_rows(ROOT / "experiments")
ARTICLES = len(read_titles(ROOT / "experiments"))
QUESTIONS = (ROOT / "experiments/questions.csv").read_text().count("\n") - 1
PAGES = {"claims": "docs/SCORECARD.md", "answers": "docs/answers.md"}
MOST_BYTES = 2_000_000
"""Largest bundle in the repository; `tests.fixtures.small_runs` leaves large traces out."""


def page(verb: str, bundles: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert called(["articles", verb, "--bundles", str(bundles), "--markdown"]) == 0
    return capsys.readouterr().out


def test_the_pages_are_those_of_the_stored_bundles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`pagecage articles VERB --bundles docs/runs --markdown > PAGE` generates a page again.

    The bundles, which take most of the time, are loaded once for all pages.
    """
    with bundled_runs(BUNDLES) as runs:
        monkeypatch.setattr(results, "_stored_runs", lambda *_: nullcontext(runs))
        for verb, path in PAGES.items():
            generated = page(verb, BUNDLES, capsys).splitlines()
            stored = (ROOT / path).read_text().splitlines()
            changed = [pair for pair in zip(stored, generated, strict=False) if pair[0] != pair[1]]
            assert stored == generated, changed[:3]
        _check_that_each_row_is_explained(runs)


def test_the_fidelity_page_is_that_of_the_stored_checks(capsys: pytest.CaptureFixture[str]) -> None:
    """`pagecage articles fidelity --markdown > docs/FIDELITY.md` generates it again."""
    assert called(["articles", "fidelity", str(ROOT / "docs/fidelity"), "--markdown"]) == 0
    assert (ROOT / "docs/FIDELITY.md").read_text() == capsys.readouterr().out


@pytest.mark.parametrize("name", ["REPLAYS.md", "CUSTOMER.md"])
def test_the_tables_of_a_page_are_those_of_the_stored_runs(name: str, tmp_path: Path) -> None:
    stored = (ROOT / "docs" / name).read_text()
    page = tmp_path / "page.md"
    page.write_text(re.sub(r"(?m)(?<= -->\n)(?:\|.*\n)+", "", stored))
    run([sys.executable, ROOT / "tools/fill-tables", page], timeout_seconds=120)
    assert page.read_text() == stored


def test_every_check_names_its_commit() -> None:
    commits = {check.name: check.commit for check in read_checks(ROOT / "docs/fidelity")}
    page = (ROOT / "docs/FIDELITY.md").read_text()
    assert all(commit and f"`{commit[:8]}`" in page for commit in commits.values()), commits


def test_rates_and_credits_keep_to_the_model() -> None:
    """docs/FIDELITY.md promises 1 % where a limit decides, and for each drain and refill."""
    checks = read_checks(ROOT / "docs/fidelity")
    assert len(checks) >= 6
    for check in checks:
        for load in check.loads:
            if load["limit"] and load["load"]["depth"] >= 16:
                requests = load["expected_per_second"] * load["seconds"]
                least_error = 1 / requests  # a load may end just before or after a request
                assert abs(load["rate_error"]) <= 0.01 + least_error, (check.name, load["load"])
        for one in check.credits:
            if (seconds := one["drain_seconds"]) is not None:
                assert seconds == pytest.approx(one["expected_drain_seconds"], rel=0.01)
            assert one["refill_per_second"] == pytest.approx(one["base_per_second"], rel=0.01)


def test_stored_bundles_are_small_and_named_after_their_runs() -> None:
    bundles = sorted(BUNDLES.glob(f"*{SUFFIX}"))
    assert sorted(BUNDLES.iterdir()) == [*bundles, BUNDLES / FILE]
    sizes = {path.name: path.stat().st_size for path in bundles}
    assert [name for name, size in sizes.items() if size > MOST_BYTES] == []
    assert [path.name for path in bundles if not path.name[:8].isdigit()] == []


def _check_that_each_row_is_explained(runs: Sequence[Run]) -> None:
    deviations = read_deviations(BUNDLES)
    rows = hosted_scorecard(ROOT / "experiments", runs).card.rows
    assert unexplained(rows, deviations) == []
    verdicts = {row.id: row.verdict for row in rows}
    explained = [id_ for deviation in deviations for id_ in deviation.claims]
    # A cause may wait for a row that more repeats will decide.
    assert {id_ for id_ in explained if verdicts[id_] in ("held", "by_construction")} == set()
    experiments = {path.stem for path in (ROOT / "experiments").glob("*.toml")}
    sources = [source for deviation in deviations for source in deviation.evidence]
    assert {one for one in sources if "://" not in one} <= experiments


def test_a_page_of_no_bundle_has_every_row_and_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page("claims", tmp_path, capsys)
    assert f"0 of {len(ROWS)} rows have a measured figure, from 0 runs." in text
    assert "There is no bundle of a run yet." in text
    by_article = text.partition("## By article")[2].partition("## By host")[0]
    lines = [line for line in by_article.splitlines() if "| 00" in line]
    totals = [int(line.split(" | ")[-1].strip(" |")) for line in lines]
    assert (len(totals), sum(totals)) == (ARTICLES, len(ROWS))
    answers = page("answers", tmp_path, capsys)
    assert answers.count("Open: no run here has answered it.") == QUESTIONS


def test_one_bundle_is_read_without_being_unpacked_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [bundle] = BUNDLES.glob(f"*-random-order-vm{SUFFIX}")
    shutil.copy(bundle, tmp_path)
    text = page("claims", tmp_path, capsys)
    name = bundle.name.removesuffix(SUFFIX)
    assert "from 1 run." in text
    assert f"| random-order | {name} | smoke | emulated guest |" in text
    assert [path.name for path in tmp_path.iterdir()] == [bundle.name]


def test_another_machines_bundle_is_shown_next_to_the_stored_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [own] = BUNDLES.glob(f"*-random-order-vm{SUFFIX}")
    [theirs] = BUNDLES.glob(f"*-cgroup-ownership-local{SUFFIX}")
    shutil.copy(own, tmp_path)
    arguments = ["articles", "claims", "--bundles", str(tmp_path), "--from", str(theirs)]
    assert called([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    [other] = data["others"]
    assert other["run"] == theirs.name.removesuffix(SUFFIX)
    assert "processors" in other["machine"]
    hosts = {row["id"]: row["host_class"] for row in data["rows"]}
    assert {hosts[id_] for id_ in other["alone"]} == {other["machine"]}
    assert called([*arguments, "--markdown"]) == 0
    assert "## Other machines" in capsys.readouterr().out
    assert called(["articles", "claims", "--bundles", str(tmp_path), "--from", str(own)]) != 0
    assert "is already among the runs" in capsys.readouterr().err


def test_a_damaged_bundle_is_refused_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"bad{SUFFIX}").write_bytes(b"PK")
    assert called(["articles", "claims", "--bundles", str(tmp_path)]) != 0
    error = capsys.readouterr().err
    assert f"bad{SUFFIX}" in error
    assert "fix:" in error


def test_the_page_of_trust_is_made_from_its_results() -> None:
    assert trust_page() == TRUST.read_text()
