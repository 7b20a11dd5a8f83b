"""Claims, completed by the rows of published figures, and the dates of their rules."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.articles.rule_dates import (
    FILE,
    HINT,
    is_same_rule,
    outdated,
    read_rule_dates,
    rule_sha256,
    update_rule_dates,
)
from pagecage.definitions.experiment import Experiment
from pagecage.errors import PagecageError
from pagecage.model.published_figures import number_or_text, read_articles
from tests.builders.definitions import EXPERIMENT, definitions, refusal, top
from tests.tree import ROOT

__all__ = ["top"]  # a fixture


ROWS = """id,experiment,condition,metric,unit,published,kind,remark,untestable
003-1,asked,jobs=24,time,s,~1.5,measured,rounded,
003-2,asked,jobs=24,outcome,qual,killed,measured,,
003-3,other,jobs=24,time,s,1,measured,,
003-4,asked,vendor,IOPS,1/s,1 million,vendor,,a vendor's figure
003-5,other asked,both,time,s,2,measured,,
"""


CLAIM = """
[[claims]]
id = "003-1"
rule = "absolute"
response = "read_seconds"
where = { cage = "tenth" }
"""


@pytest.fixture
def rows(top: Path) -> Path:
    (top / "experiments/articles").mkdir()
    (top / "experiments/articles/003-tour.csv").write_text(ROWS)
    return top


def claims_of(top: Path, text: str) -> Experiment:
    (top / "experiments/asked.toml").write_text(EXPERIMENT + text)
    return definitions(top).experiment("asked")


def test_a_claim_is_completed_by_its_row(rows: Path) -> None:
    experiment = claims_of(rows, CLAIM)
    [claim] = experiment.definition["claims"]
    assert claim == {
        "id": "003-1",
        "rule": "absolute",
        "says": "jobs=24: time",
        "published": 1.5,
        "unit": "s",
        "response": "read_seconds",
        "over_response": None,
        "over_boot": False,
        "per": None,
        "statistic": "median",
        "along": None,
        "key": None,
        "where": {"cage": "tenth"},
        "origin": "article",
        "over": None,
        "than": None,
        "than_over": None,
        "also": [],
        "counts_as": None,
        "corrected": None,
        "with_wrong_answers": False,
        "tolerance_factor": 2.0,
        "needs": "any_size",
        "remark": "rounded",
    }
    assert list(experiment.claims) == experiment.definition["claims"]


def test_a_claims_own_values_are_kept(rows: Path) -> None:
    experiment = claims_of(rows, CLAIM + 'published = 3\nsays = "mine"\nremark = ""\n')
    [claim] = experiment.claims
    assert (claim["published"], claim["says"], claim["remark"]) == (3, "mine", "")


def test_a_row_may_belong_to_two_experiments(rows: Path) -> None:
    assert claims_of(rows, CLAIM.replace("003-1", "003-5")).claims[0]["published"] == 2


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("003-1", "003-9", "no article has a row '003-9'"),
        ("003-1", "003-3", "claims.003-3 belongs to other"),
        ("003-1", "003-4", "untestable"),
        ("003-1", "003-2", "claims.003-2.published: 'killed' is not a number"),
        ('"tenth"', '"tnth"', "claims.003-1.where: cage = 'tnth' is not a level"),
        ('"absolute"', '"ratio"', "needs `over`, the other side"),
        (
            '"absolute"',
            '"ordering_of_ratios"\nover = { cage = "uncaged" }',
            "needs than and than_over",
        ),
        (
            '"absolute"',
            '"absolute"\nthan = { cage = "tnth" }\nthan_over = { cage = "tenth" }',
            "needs than and than_over",
        ),
        ('"absolute"', '"config"', "needs `key`"),
        (
            '"absolute"',
            '"config"\nkey = "sizes.full.filse"',
            "the definition has no sizes.full.filse",
        ),
        ('"absolute"', '"decoded"', "vm_flags, fault_flags"),
        ('"absolute"', '"range"', "1.5 is not two numbers"),
        ('"absolute"', '"range"\npublished = [3.0, 2.0]', "is not two numbers, the lower first"),
        ('"absolute"', '"ordering"\nover = { cage = "uncaged" }', "is not one of less, greater"),
        ('"absolute"', '"outcome"', "is not one of killed, ran"),
        ('"absolute"', '"best"', "rule"),
        (
            '"absolute"',
            '"absolute"\nalso = [{ cage = "tnth" }]',
            "also: cage = 'tnth' is not a level",
        ),
        ('"absolute"', '"absolute"\ncounts_as = "luck"', "counts_as"),
        ('"absolute"', '"absolute"\ncorrected = "yesterday"', "corrected"),
        ('response = "read_seconds"', "", "rule 'absolute' needs a response"),
    ],
)
def test_a_wrong_claim_is_named(rows: Path, old: str, new: str, word: str) -> None:
    assert word in refusal(rows, EXPERIMENT + CLAIM.replace(old, new)).message


@pytest.mark.parametrize(
    "rule",
    [
        '"range"\npublished = [1.0, 2.0]',
        '"outcome"\npublished = "ran"',
        '"ordering"\npublished = "less"\nover = { cage = "uncaged" }',
        (
            '"ordering_of_ratios"\npublished = "less"\nover = { cage = "uncaged" }\n'
            'than = { cage = "uncaged" }\nthan_over = { cage = "tenth" }'
        ),
        '"outcome"\npublished = "wrong_answer"',
        '"config"\nkey = "sizes.full.max_seconds"',
        '"at_most"',
        '"at_least"',
    ],
)
def test_every_rule_can_be_right(rows: Path, rule: str) -> None:
    assert len(claims_of(rows, CLAIM.replace('"absolute"', rule)).claims) == 1


def test_without_articles_a_claim_has_its_own_figure(top: Path) -> None:
    own = CLAIM + 'says = "x"\npublished = 1.0\nunit = "s"\n'
    assert claims_of(top, own).claims[0]["remark"] == ""
    refused = refusal(top, EXPERIMENT + own.replace("published = 1.0", ""))
    assert "claims.003-1.published is missing" in refused.message


def test_findings_name_levels_that_are_there(top: Path) -> None:
    finding = '[[findings]]\nquestion = "Q08"\nsays = "{value}"\nresponse = "r"\n'
    text = finding + 'where = { cage = "tenth" }\n'
    assert claims_of(top, text).definition["findings"][0]["question"] == "Q08"
    refused = refusal(top, EXPERIMENT + text.replace('"tenth"', '"tnth"'))
    assert "findings[0].where: cage = 'tnth'" in refused.message


def test_a_duplicate_id_is_named(rows: Path) -> None:
    (rows / "experiments/articles/004-log.csv").write_text("\n".join(ROWS.splitlines()[:2]))
    with pytest.raises(PagecageError, match="the id 003-1 is not unique"):
        read_articles(rows / "experiments/articles")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~740", 740),
        (">5", 5),
        ("1.0G", 2**30),
        ("804.4M", 804.4 * 2**20),
        ("0.0k", 0),
        ("killed", "killed"),
        ("2.5-3", "2.5-3"),
        ("-1", -1),
        ("1 million", "1 million"),
        ("", ""),
    ],
)
def test_a_published_figure_is_a_number_where_it_is_one(text: str, value: float | str) -> None:
    assert number_or_text(text) == value


@given(st.text(max_size=12))
def test_no_figure_is_a_crash(text: str) -> None:
    assert isinstance(number_or_text(text), float | str)


DATED_CLAIM = '[[claims]]\nid = "003-1"\nrule = "absolute"\nresponse = "read_seconds"\n'


FIRST, SECOND = datetime.date(2026, 11, 20), datetime.date(2026, 11, 22)


@pytest.fixture
def experiments(tmp_path: Path) -> Path:
    (tmp_path / "one.toml").write_text(DATED_CLAIM)
    update_rule_dates(tmp_path, FIRST)
    return tmp_path


def test_every_rule_of_this_checkout_has_the_date_of_its_last_change() -> None:
    assert outdated(ROOT / "experiments") == [], HINT


@pytest.mark.parametrize(
    "line", ["tolerance_factor = 3.0", 'needs = "published_size"', 'statistic = "minimum"']
)
def test_a_rule_that_changed_is_told_until_it_is_dated_anew(experiments: Path, line: str) -> None:
    assert outdated(experiments) == []
    (experiments / "one.toml").write_text(DATED_CLAIM + line + "\n")
    assert outdated(experiments) == ["one: the rule of 003-1 has changed, and its date has not"]
    assert [date.changed for date in update_rule_dates(experiments, SECOND)] == ["2026-11-22"]
    assert outdated(experiments) == []
    assert read_rule_dates(experiments)["003-1", "one"].changed == "2026-11-22"


def test_words_and_defaults_are_no_change_of_a_rule(experiments: Path) -> None:
    same = 'remark = "a word"\nsays = "another"\ntolerance_factor = 2.0\nneeds = "any_size"\n'
    (experiments / "one.toml").write_text(DATED_CLAIM + same)
    assert outdated(experiments) == []
    assert update_rule_dates(experiments, SECOND) == []
    assert read_rule_dates(experiments)["003-1", "one"].changed == "2026-11-20"


def test_a_rule_that_is_gone_loses_its_date(experiments: Path) -> None:
    (experiments / "one.toml").write_text('question = "?"\n')
    assert outdated(experiments) == ["one: 003-1 has a date and no rule"]
    update_rule_dates(experiments, SECOND)
    assert (experiments / FILE).read_text().splitlines() == ["id,experiment,changed,sha256"]


def test_a_plans_rule_is_the_same_apart_from_the_figure_of_its_row() -> None:
    rule = {"id": "003-1", "rule": "absolute", "response": "read_seconds"}
    planned = {**rule, "published": 1.5, "unit": "s", "over": None, "statistic": "median"}
    assert is_same_rule(planned, rule)
    assert not is_same_rule(planned, {**rule, "published": 2})
    assert not is_same_rule(planned, {**rule, "statistic": "minimum"})
    assert rule_sha256(rule) != rule_sha256({**rule, "published": 2})
