"""The stored results of fault campaigns: a later campaign injects what is missing."""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from pathlib import Path

from pagecage.process import run
from reliability.faults.injection import Injection, Point
from reliability.faults.results import (
    StoredCampaign,
    StoredFault,
    faults_section,
    injected,
    read_campaign,
    write_campaign,
)
from tests.tree import ROOT

FIRST, SECOND, THIRD = (
    Injection(Point("main", "write", f'/a "{name}", b', 1), "EIO") for name in "xyz"
)
PLAN = (FIRST, SECOND, THIRD)


def done(injection: Injection, state: int = 1, wrong: str = "") -> StoredFault:
    return StoredFault("run", injection, state, True, "3", "0", 0.5, wrong)


def test_only_what_has_no_result_with_the_present_code_is_pending() -> None:
    campaign = StoredCampaign(1).at("a code").with_results("run", PLAN, [done(SECOND)])
    assert campaign.pending("run", PLAN) == [FIRST, THIRD]
    assert campaign.at("a code") == campaign
    assert campaign.pending("fleet", PLAN) == list(PLAN)


def test_after_a_change_the_missing_come_first_then_the_wrong_then_the_others() -> None:
    found = [done(FIRST), done(SECOND, wrong="a record was lost")]
    campaign = StoredCampaign(1).at("a code").with_results("run", PLAN, found).at("another")
    assert campaign.states == ("a code", "another")
    assert campaign.pending("run", PLAN) == [THIRD, SECOND, FIRST]


def test_what_was_wrong_before_a_change_is_kept() -> None:
    campaign = StoredCampaign(1).at("a").with_results("run", PLAN, [done(FIRST, wrong="lost")])
    for code in "bc":
        state = len(campaign.at(code).states)
        campaign = campaign.at(code).with_results("run", PLAN, [done(FIRST, state)])
    assert (campaign.faults[0].wrong, campaign.faults[0].wrong_before) == ("", "lost")


def test_a_result_whose_call_no_longer_occurs_is_dropped_unless_the_code_is_the_same() -> None:
    campaign = StoredCampaign(1).at("a").with_results("run", PLAN, [done(FIRST)])
    shorter = PLAN[1:]
    assert FIRST in [one.injection for one in campaign.with_results("run", shorter, []).faults]
    changed = campaign.at("b").with_results("run", shorter, [])
    assert [one.injection for one in changed.faults] == list(shorter)


def test_a_campaign_is_read_as_it_was_stored(tmp_path: Path) -> None:
    found = [done(FIRST), replace(done(SECOND, wrong='"quoted", lost'), status="")]
    campaign = StoredCampaign(1).at("a code").with_results("run", PLAN, found)
    write_campaign(tmp_path, campaign, ["run"])
    assert read_campaign(tmp_path, 2) == campaign
    assert read_campaign(tmp_path / "missing", 2) == StoredCampaign(2)
    assert injected(tmp_path) == (2, 1)


def test_the_page_names_what_was_not_injected_with_the_newest_code(tmp_path: Path) -> None:
    campaign = StoredCampaign(1).at("a").with_results("run", PLAN, [done(FIRST), done(SECOND)])
    campaign = campaign.at("b").with_results("run", PLAN, [done(SECOND, 2, "a lock was left")])
    write_campaign(tmp_path, campaign, ["run"])
    text = "\n".join(faults_section(tmp_path))
    assert "Not injected yet: 1 of `run`." in text
    assert "1 with earlier code and not repeated since: 1 of `run`." in text
    assert "**1 had a consequence that must not be**" in text
    assert f"**still wrong**, `run`: {SECOND}: a lock was left" in text


def inject(results: Path, count: int) -> list[str]:
    """Inject some faults more into `bundle`; return the names of all that have a result."""
    argv = [sys.executable, "-m", "reliability.faults", "bundle", "--workers", "1"]
    argv += ["--results", str(results), "--at-most", str(count)]
    run(argv, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, timeout_seconds=300)
    with (results / "faults.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["state"]]
    return [f"{row['fault']} {row['call']} {row['target']} {row['occurrence']}" for row in rows]


def test_a_second_campaign_continues_the_first(tmp_path: Path) -> None:
    first = inject(tmp_path, 2)
    second = inject(tmp_path, 3)
    assert (len(first), len(second)) == (2, 5)
    assert set(first) < set(second)
