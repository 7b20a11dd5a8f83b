"""The fault layer: it misses no call, and it sees what a careless program leaves."""

from __future__ import annotations

import csv
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.model.json_codec import Json
from pagecage.process import run
from reliability.faults.injection import KILLED, TORN, Injection, Point, faults_at
from reliability.faults.results import (
    StoredCampaign,
    StoredFault,
    faults_section,
    injected,
    read_campaign,
    write_campaign,
)
from reliability.faults.system_calls import NAMES
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
    assert "**1 had a forbidden consequence**" in text
    assert f"**still wrong**, `run`: {SECOND}: a lock was left" in text


def inject(results: Path, count: int) -> list[str]:
    """Inject some faults more into `bundle`; return the names of all that have a result."""
    argv = [sys.executable, "-m", "reliability.faults", "bundle", "--workers", "1"]
    argv += ["--results", str(results), "--at-most", str(count)]
    run(argv, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, timeout_seconds=300)
    with (results / "faults.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["state"]]
    return [f"{row['fault']} {row['call']} {row['target']} {row['occurrence']}" for row in rows]


@pytest.mark.slow
def test_a_second_campaign_continues_the_first(tmp_path: Path) -> None:
    first = inject(tmp_path, 2)
    second = inject(tmp_path, 3)
    assert (len(first), len(second)) == (2, 5)
    assert set(first) < set(second)


SAMPLE = 100
_CARELESS = """
import ctypes, json, sys
from pathlib import Path
from reliability.faults.scenario import Scenario, own_role, tell
from reliability.faults.campaign import Bench, injections

def start(root): return tell(root, lambda: {program} or 0)
def text(root): return (root / "a").read_text() if (root / "a").exists() else None
def wrong(root, before, expected):
    if before and before != expected: yield "half a file"
    if text(root) != expected: yield "no file"

again = lambda root: start(root) if text(root) is None else 0
scenario = Scenario("careless", lambda root: None, start, again, text, text, wrong, own_role)
bench = Bench(scenario, Path(sys.argv[1]))
unharmed = bench.unharmed()
found = [bench.judge(one, unharmed) for one in injections(scenario, unharmed)]
bench.close()
print(json.dumps({{"calls": [[p.call, p.target] for p in unharmed.trace],
                   "wrong": {{str(one.injection): one.wrong for one in found if one.wrong}}}}))
"""
_WHOLE = "__import__('pagecage.whole_files').whole_files.write_whole(root / 'a', 'a text')"


def judged(folder: Path, program: str) -> Json:
    """Return the calls of a small program, and what every fault at them did."""
    argv = [sys.executable, "-c", _CARELESS.format(program=program), str(folder)]
    done = run(argv, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, timeout_seconds=300)
    found: Json = json.loads(done.stdout)
    return found


def test_a_file_that_is_written_in_place_is_seen_to_be_half(tmp_path: Path) -> None:
    found = judged(tmp_path, "0 * (root / 'a').write_text('a text')")
    assert found["calls"] == [["openat", "/a"], ["write", "/a"]]
    wrong = found["wrong"]
    assert wrong[f"{TORN} at main's write /a #1"] == ["half a file", "no file"]
    assert "it ended with status 120" in wrong["EIO at main's write /a #1"]
    assert "no file" in wrong[f"{KILLED} at main's write /a #1"]


def test_a_file_that_is_renamed_into_place_is_whole_or_absent(tmp_path: Path) -> None:
    found = judged(tmp_path, _WHOLE)
    assert [call for call, _ in found["calls"]][-2:] == ["rename", "fsync"]
    halves = [one for one, wrong in found["wrong"].items() if "half a file" in wrong]
    assert halves == []


def test_a_temporary_file_that_stays_is_seen(tmp_path: Path) -> None:
    found = judged(
        tmp_path,
        "(part := root / ('a.%d' % __import__('os').getpid()))"
        ".write_text('a text') and part.rename(root / 'a') and 0",
    )
    assert "left behind: a.N" in found["wrong"]["EIO at main's rename /a #1"]


@pytest.mark.parametrize("name", sorted(set(NAMES.values())))
def test_every_call_has_faults(name: str) -> None:
    for target in ("/a", "pipe"):
        assert next(iter(faults_at(Point("main", name, target, 1)))) == KILLED


def test_an_injection_has_a_name() -> None:
    point = Point("main", "rename", "/runs/TIME", 2)
    assert str(Injection(point, "EIO")) == "EIO at main's rename /runs/TIME #2"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "name"),
    [
        ("fleet", "SIGKILL at ansible's write pipe #7"),
        ("fleet", "EAGAIN at main's clone3 thread #1"),
        ("fleet", "no answer at ansible's write pipe #6"),
        ("fleet", "no answer at ansible's write pipe #12"),
        ("resume", "disk full at main's write /tmp/RANDOM #1"),
    ],
)
def test_a_fault_that_once_had_a_consequence(scenario: str, name: str) -> None:
    argv = [sys.executable, "-m", "reliability.faults", scenario, "--only", name]
    argv += ["--workers", "1", "--json"]
    done = run(argv, check=False, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, timeout_seconds=300)
    assert done.status == 0, done.stderr
    [row] = json.loads(done.stdout)
    assert (row["injections"], row["met"], row["wrong"]) == (1, 1, [])


@pytest.fixture(scope="module")
def sample() -> list[dict[str, object]]:
    """Return the results of some injections of every scenario, chosen by a seed."""
    seed = os.environ.get("PAGECAGE_FAULTS_SEED", "1")
    argv = [sys.executable, "-m", "reliability.faults"]
    done = run(
        [*argv, "--sample", str(SAMPLE), "--seed", seed, "--json"],
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        timeout_seconds=800,
    )
    assert done.status == 0, done.stderr
    rows: list[dict[str, object]] = json.loads(done.stdout)
    return rows


@pytest.mark.slow
def test_a_sample_of_faults_has_no_consequence(sample: list[dict[str, object]]) -> None:
    assert sum(int(str(row["injections"])) for row in sample) >= SAMPLE
    assert [row["wrong"] for row in sample] == [[]] * len(sample)
