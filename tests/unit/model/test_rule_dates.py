"""Tests of the dates on which rules were last changed."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from pagecage.model.published_figures import (
    FILE,
    HINT,
    is_same_rule,
    outdated,
    read_rule_dates,
    rule_sha256,
    update_rule_dates,
)
from tests.tree import ROOT

CLAIM = '[[claims]]\nid = "003-1"\nrule = "absolute"\nresponse = "read_seconds"\n'
FIRST, SECOND = datetime.date(2026, 11, 20), datetime.date(2026, 11, 22)


@pytest.fixture
def experiments(tmp_path: Path) -> Path:
    (tmp_path / "one.toml").write_text(CLAIM)
    update_rule_dates(tmp_path, FIRST)
    return tmp_path


def test_every_rule_of_this_checkout_has_the_date_of_its_last_change() -> None:
    assert outdated(ROOT / "experiments") == [], HINT


@pytest.mark.parametrize(
    "line", ["tolerance_factor = 3.0", 'needs = "published_size"', 'statistic = "minimum"']
)
def test_a_rule_that_changed_is_told_until_it_is_dated_anew(experiments: Path, line: str) -> None:
    assert outdated(experiments) == []
    (experiments / "one.toml").write_text(CLAIM + line + "\n")
    assert outdated(experiments) == ["one: the rule of 003-1 has changed, and its date has not"]
    assert [date.changed for date in update_rule_dates(experiments, SECOND)] == ["2026-11-22"]
    assert outdated(experiments) == []
    assert read_rule_dates(experiments)["003-1", "one"].changed == "2026-11-22"


def test_words_and_defaults_are_no_change_of_a_rule(experiments: Path) -> None:
    same = 'remark = "a word"\nsays = "another"\ntolerance_factor = 2.0\nneeds = "any_size"\n'
    (experiments / "one.toml").write_text(CLAIM + same)
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
