"""The page's section about costs: its ratios, its marks, and where its figures are collected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reliability.costs import collected, costs_section, costs_summary


def cost(*seconds: float) -> dict[str, Any]:
    return {"seconds": seconds, "cpu_seconds": 0.01, "most_bytes": 20_000_000}


def trial(collectors: str, beside: str, speed: float, reader: str = "cold") -> dict[str, Any]:
    others: dict[str, Any] = {"block_p99_us": 100.0, "device_read_bytes": None, "statuses": {}}
    sets = {"reader": reader, "collectors": collectors, "beside": beside}
    return {**sets, "bytes_per_second": speed, **others}


def section(tmp_path: Path, **found: Any) -> str:
    (tmp_path / "costs.json").write_text(json.dumps(found))
    return "\n".join(costs_section(tmp_path))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.3, "| 1.50 (1.50 to 1.50) times"), (0.5, "| **2.50 (2.50 to 2.50) times systemd-run")],
)
def test_a_ratio_above_its_goal_is_marked(tmp_path: Path, seconds: float, words: str) -> None:
    peers = {"systemd-run": cost(0.2, 0.2)}
    costs = {"trial": cost(seconds, seconds), "peers": peers, "phases": {"run": 0.1, "slice": 0.2}}
    page = section(tmp_path, peers=[{"machine": "a machine", **costs}])
    assert words in page
    [line] = costs_summary(tmp_path)
    assert ("1 of 1 figures" in line) == ("**" not in words)
    assert ("not: a trial of nothing, a machine" in line) == ("**" in words)


def test_a_collector_that_slows_the_reader_is_marked(tmp_path: Path) -> None:
    trials = [trial("none", "sar", 100.0), trial("sar", "sar", 99.5)]
    trials += [trial("bpftrace", "bpftrace", 80.0), trial("none", "bpftrace", 100.0)]
    trials += [trial("none", "iostat", 50.0)]
    trials += [trial("none", "sar", 10.0, reader="resident")]
    trials += [trial("sar", "sar", 20.0, reader="resident")]
    page = section(tmp_path, observers={"guest": trials})
    rows = [line for line in page.splitlines() if line.startswith("| collectors")]
    beside = "| collectors beside a reader of a {} file, in the guest | observers | "
    assert rows == [
        beside.format("cold") + "**1 of 2 sets meet it; bpftrace has -20.0 % (-20.0 to -20.0) of"
        " the speed** |",
        beside.format("resident") + "1 of 1 sets meet it; sar has +100.0 % (+100.0 to +100.0) of"
        " the speed |",
    ]


def test_what_grows_is_marked(tmp_path: Path) -> None:
    one = {"trials": 100, "fresh": "never", "plan_seconds": 0.0, "resume_seconds": 0.0}
    one |= {"run_seconds": 1.0, "most_bytes": 10**6}
    page = section(tmp_path, growth=[one, {**one, "trials": 1000, "run_seconds": 20.0}])
    row = "| a plan of 1,000 trials, in one go | growth | **20.0 ms of CPU a trial, 2.00 times that"
    assert row in page


@pytest.mark.parametrize(("seconds", "mark"), [(101.0, "10.0 ms"), (201.0, "**21.1 ms")])
def test_a_report_whose_trials_cost_more_is_marked(
    tmp_path: Path, seconds: float, mark: str
) -> None:
    found = {1: 1.0, 1_000: 10.99, 10_000: seconds}
    costs = [
        {"trials": trials, "cpu_seconds": cost, "most_bytes": 10**8}
        for trials, cost in found.items()
    ]
    page = section(tmp_path, reports=costs)
    assert f"| a report of 10,000 trials | reports | {mark} of CPU a further trial" in page


def test_results_stay_until_they_are_measured_again(tmp_path: Path) -> None:
    (tmp_path / "growth.json").write_text("[1]")
    (tmp_path / "observers-guest.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    stored = {"peers": ["old"], "growth": ["old"], "observers": {"natively": ["old"]}}
    found = collected(tmp_path, stored)
    assert (found["peers"], found["growth"]) == (["old"], [1])
    assert found["observers"] == {"natively": ["old"], "guest": [{"a": 1}, {"a": 2}]}
