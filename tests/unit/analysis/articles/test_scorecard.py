"""The scorecard, and causes of deviations."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.articles.rule_dates import update_rule_dates
from analysis.articles.scorecard import (
    DECIDED,
    FILE,
    VERDICTS,
    Deviation,
    Scorecard,
    ScoredClaim,
    _measurement,
    count_verdicts,
    newest_runs,
    read_deviations,
    scorecard,
    unexplained,
    with_figures,
)
from pagecage.errors import PagecageError
from pagecage.model.published_figures import PublishedFigure, read_definitions, read_rows
from tests.builders.command_line import called
from tests.builders.published_figures import mismatches
from tests.fixtures.runs import build_run
from tests.tree import ROOT

ROWS = read_rows(ROOT / "experiments")
COLUMNS = "id,experiment,condition,metric,unit,published,kind,remark,untestable"
NEEDS_NOTHING = (*DECIDED, "untestable")
RULE = """
[[claims]]
id = "003-177"
rule = "absolute"
response = "full_pass_seconds"
where = { cage = "uncaged", source = "heap", pattern = "random" }
"""


RUN_ID = "20261121T100000Z-constrained-random-vm"
Place = tuple[Path, Path]
"""The folders of experiments and of runs."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Three published figures, two definitions and one run."""
    experiments, runs = tmp_path / "experiments", tmp_path / "runs"
    (experiments / "articles").mkdir(parents=True)
    (experiments / "articles/articles.toml").write_text('["003"]\ntitle = "a tour"\n')
    (experiments / "articles/003.csv").write_text(
        f"{COLUMNS}\n"
        "003-177,other constrained-random,none,time,s,1.4,measured,,\n"
        "003-178,constrained-random,none,time,s,3.6,measured,a remark,\n"
        "003-179,constrained-random,none,samples,count,5,measured,,needs another CPU\n"
    )
    constrained = (ROOT / "experiments/constrained-random.toml").read_text()
    (experiments / "constrained-random.toml").write_text(constrained)
    (experiments / "other.toml").write_text(f'question = "?"\n{RULE}')
    build_run(runs / RUN_ID)
    (runs / "latest-constrained-random").symlink_to(RUN_ID)
    return experiments, runs


def rows_of(place: Place, only: str | None = None) -> dict[str, ScoredClaim]:
    experiments, runs = place
    return {row.id: row for row in scorecard(experiments, newest_runs(runs), only).rows}


def test_there_are_410_rows_and_five_of_ours_each_with_an_id_of_its_own_in_order() -> None:
    assert [int(row.id[4:]) for row in ROWS] == list(range(1, 416))
    conclusions = [row.id for row in ROWS if row.origin == "conclusion"]
    assert conclusions == ["000-393", "000-394", "000-395", "003-396", "003-397"]
    assert {row.id[:3] for row in ROWS} == {"000", "001", "002", "003", "004"}


def test_the_files_have_the_columns_that_are_promised_and_no_quotes_of_an_article() -> None:
    for file in sorted((ROOT / "experiments/articles").glob("*.csv")):
        assert file.read_text().partition("\n")[0] == COLUMNS


def test_every_row_has_a_verdict_and_a_kind_and_the_sum_is_415() -> None:
    card = scorecard(ROOT / "experiments", {})
    totals = count_verdicts(card.rows)
    assert totals["all"] == sum(totals[verdict] for verdict in VERDICTS) == 415
    for counts in (card.totals(), card.totals_by_kind()):
        assert sum(lines["all"] for lines in counts.values()) == 415
    assert all((row.machine is None) == (row.verdict in NEEDS_NOTHING) for row in card.rows)


def test_a_run_answers_for_its_experiments_rows(place: Place) -> None:
    rows = rows_of(place)
    row = rows["003-178"]
    assert (row.verdict, row.run, row.remark) == ("not_comparable", RUN_ID, "a remark")
    assert row.measured == pytest.approx(0.062, abs=0.01)
    assert (rows["003-179"].verdict, rows["003-179"].reason) == ("untestable", "needs another CPU")


def test_where_a_rows_own_experiment_was_not_run_another_that_tests_it_answers(
    place: Place,
) -> None:
    row = rows_of(place)["003-177"]
    assert (row.experiment, row.verdict, row.run) == ("other", "not_comparable", RUN_ID)
    [alone] = rows_of(place, "other").values()
    reason = "its experiment has not been run here"
    assert (alone.id, alone.verdict, alone.reason) == ("003-177", "not_run", reason)


def test_a_rule_that_changed_after_the_run_is_not_answered_by_it(place: Place) -> None:
    file = place[0] / "constrained-random.toml"
    before, claim, after = file.read_text().partition('id = "003-178"\n')
    assert 'response = "full_pass_seconds"' in after.partition("[[claims]]")[0]
    file.write_text(before + claim + after.replace("full_pass_seconds", "read_seconds", 1))
    row = rows_of(place)["003-178"]
    reason = "its rule is newer than the newest run"
    assert (row.verdict, row.reason, row.measured) == ("not_run", reason, None)


def test_a_dated_correction_judges_older_runs_and_the_row_says_so(place: Place) -> None:
    experiments, _ = place
    file = experiments / "constrained-random.toml"
    old = 'rule = "outcome"\nneeds = "any_size"\n'
    changed = f'published = "ran"\n{old}corrected = "2026-11-24: was the other way round"\n'
    text = file.read_text().replace('published = "killed"\n', "")
    file.write_text(text.replace(old, changed))
    (experiments / "articles/003.csv").open("a").write(
        "003-183,constrained-random,none,time,outcome,killed,measured,,\n"
    )
    row = rows_of(place)["003-183"]
    assert (row.verdict, row.measured) == ("not_held", "killed")
    assert row.reason.endswith("rule corrected on 2026-11-24: was the other way round")


def test_the_headline_counts_mechanisms_and_their_distinct_measurements() -> None:
    rows = (
        replace(figure("003-1", verdict), counts_as=kind, measurement=measurement)
        for kind, verdict, measurement in (
            ("mechanism", "held", "a"),
            ("mechanism", "held", "a"),
            ("mechanism", "not_held", "b"),
            ("mechanism", "no_data", "c"),
            ("absolute", "held", "d"),
            ("absolute", "untestable", ""),
            ("construction", "by_construction", "e"),
        )
    )
    assert Scorecard(tuple(rows), {}).headline() == (
        "2 of 4 mechanisms are reproduced, by 1 distinct measurements; 1 are not, and 1 are"
        " open. Of 2 absolute figures of other machines, 1 are within their factor, 0 are not,"
        " and 1 are open. 1 figures are fixed by the definition or the set-up and count as"
        " neither."
    )


def test_rows_about_the_same_trials_and_response_are_one_measurement() -> None:
    rows = {row.id: row for row in scorecard(ROOT / "experiments", {}).rows}
    experiments = read_definitions(ROOT / "experiments")
    claims = {claim["id"]: claim for claim in experiments["async-hazard"]["claims"]}
    one, same, other = (_measurement("async-hazard", claims[f"000-{n}"]) for n in (19, 33, 30))
    assert one == same != other
    assert rows["000-19"].measurement == ""


def test_a_row_without_a_rule_and_one_without_an_experiment_say_so(place: Place) -> None:
    file = place[0] / "constrained-random.toml"
    file.write_text(file.read_text().replace('id = "003-178"', 'id = "003-999"'))
    assert rows_of(place)["003-178"].reason == "its experiment has no rule for it yet"
    file.unlink()
    assert rows_of(place)["003-178"].reason == "its experiment is not defined yet"


def test_a_claim_about_the_definition_needs_no_run(place: Place) -> None:
    file = place[0] / "other.toml"
    file.write_text(
        '[[claims]]\nid = "003-177"\nrule = "config"\nkey = "sizes.full.files"\npublished = 8\n'
        "[sizes.full]\nfiles = 8\n"
    )
    row = rows_of(place)["003-177"]
    assert (row.verdict, row.measured, row.run) == ("by_construction", 8, None)
    file.write_text(file.read_text().replace("files = 8", "files = 7"))
    assert rows_of(place)["003-177"].verdict == "not_held"


def test_a_run_that_has_just_begun_hides_no_older_one(place: Place) -> None:
    _, runs = place
    (runs / "latest-constrained-random").unlink()
    (runs / "latest-constrained-random").symlink_to("gone")
    assert rows_of(place)["003-178"].run == RUN_ID
    newer = build_run(runs / "20261121T110000Z-constrained-random-vm")
    assert rows_of(place)["003-178"].run == newer.name
    (newer / "records.jsonl").write_text("")
    assert rows_of(place)["003-178"].run == RUN_ID


def test_a_run_that_cannot_be_read_is_named(place: Place) -> None:
    (place[1] / RUN_ID / "plan.json").unlink()
    with pytest.raises(PagecageError, match="it has no plan"):
        rows_of(place)


def test_an_unknown_experiment_is_an_error_message(place: Place) -> None:
    with pytest.raises(PagecageError, match="nosuch"):
        rows_of(place, "nosuch")


def test_the_terminal_has_every_row_and_the_totals(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("analysis.results.TOP", place[0].parent)
    assert called(["articles", "claims", "--runs", str(place[1])]) == 0
    text = capsys.readouterr().out
    assert "not comparable" in text
    assert "untestable: 003-179: needs another CPU" in text
    [total] = [line.split() for line in text.splitlines() if line.startswith("in all")]
    assert total == ["in", "all", "2", "1", "3"]  # not comparable, untestable, all
    assert "0 of 0 mechanisms are reproduced" in text
    assert called(["articles", "claims", "--runs", str(place[1]), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (len(data["rows"]), data["totals"]["all"]["all"]) == (3, 3)
    assert data["totals"]["kinds"]["absolute"]["all"] == 3
    assert data["rows"][1]["command"] == "make experiment NAME=constrained-random SIZE=full"
    assert data["headline"].startswith("0 of 0 mechanisms")


def test_at_most_twenty_rows_are_untestable_and_each_states_why() -> None:
    untestable = [row for row in ROWS if row.untestable]
    assert len(untestable) <= 20
    assert all(len(row.untestable) > 10 for row in untestable)


def test_a_row_has_its_origin_and_the_day_on_which_its_rule_changed(place: Place) -> None:
    assert rows_of(place)["003-178"].rule_changed is None
    update_rule_dates(place[0], datetime.date(2026, 11, 20))
    row = rows_of(place)["003-178"]
    assert (row.rule_changed, row.origin) == ("2026-11-20", "article")


def row(number: int, experiment: str = "a", untestable: str = "") -> PublishedFigure:
    texts = ("c", "m", "s", "1", "measured", "")
    return PublishedFigure(f"003-{number}", (experiment,), *texts, untestable)


def test_inconsistencies_between_rows_and_rules_are_named() -> None:
    rows = [row(1), row(2), row(3, untestable="why"), row(4, "b"), row(5, "gone")]
    rule = [{"id": f"003-{number}"} for number in (1, 3, 4, 9)]
    told = mismatches(rows, {"a": {"claims": rule}, "b": {}})
    assert told == [
        "a: no article has 003-9",
        "a: 003-4 belongs to b",
        "003-3: a rule and a reason why it is untestable",
        "003-2: no rule and no reason",
        "003-5: no rule and no reason",
        "there is no experiment gone",
    ]


def test_every_row_has_a_rule_of_its_experiment_or_a_reason() -> None:
    assert mismatches(ROWS, read_definitions(ROOT / "experiments")) == []


ONE = (
    '[[deviations]]\nclaims = ["000-1"]\ncause = "a faster disk"\nevidence = ["fio-matrix"]\n'
    'untested = "a slower disk"\n'
)


def figure(id_: str, verdict: str) -> ScoredClaim:
    return ScoredClaim(
        id_, "smoke", "says", 1, "s", 2.0, None, None, 1, verdict, "reason", "", "run"
    )


def test_without_a_file_nothing_is_explained(tmp_path: Path) -> None:
    assert read_deviations(tmp_path) == ()


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(ONE)
    expected = Deviation(("000-1",), "a faster disk", ("fio-matrix",), untested="a slower disk")
    assert read_deviations(tmp_path) == (expected,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[", "is not a list of deviations"),
        ("", "is not a list of deviations"),
        (ONE.replace("cause", "reason"), "is incomplete"),
        (ONE.replace('["fio-matrix"]', "[]"), "is incomplete"),
        (ONE.replace('untested = "a slower disk"\n', ""), "is incomplete"),
        (ONE + 'tested = "both"\n', "is incomplete"),
        (ONE + ONE, "explains 000-1 twice"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(PagecageError, match=message):
        read_deviations(tmp_path)


def test_only_rows_that_do_not_hold_need_an_explanation() -> None:
    rows = [figure("000-1", "not_held"), figure("000-2", "held"), figure("000-3", "not_held")]
    assert unexplained(rows, [Deviation(("000-1",), "cause", ("smoke",))]) == ["000-3"]


def test_a_cause_quotes_measured_figures() -> None:
    assert with_figures("it reads at {003-1}", {"003-1": "2 GB/s"}) == "it reads at 2 GB/s"
    with pytest.raises(PagecageError, match="names 003-1, which has no measured figure"):
        with_figures("it reads at {003-1}", {})
