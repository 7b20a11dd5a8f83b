"""The page's section about costs: its ratios, its marks, and where its figures are collected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reliability.costs.__main__ import collected
from reliability.costs.section import costs_section


def cost(*seconds: float) -> dict[str, Any]:
    return {"seconds": seconds, "cpu_seconds": 0.01, "most_bytes": 20_000_000}


def trial(
    collectors: str, beside: str, speed: float, gap: float = 0.1, reader: str = "cold"
) -> dict[str, Any]:
    return {
        "reader": reader,
        "collectors": collectors,
        "beside": beside,
        "bytes_per_second": speed,
        "block_p99_us": 100.0,
        "device_read_bytes": None,
        "median_gap_seconds": 0.1,
        "longest_gap_seconds": gap,
        "statuses": {},
    }


def section(tmp_path: Path, **found: Any) -> str:
    (tmp_path / "costs.json").write_text(json.dumps(found))
    return "\n".join(costs_section(tmp_path))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.3, "| 1.50 (1.50 to 1.50) | 2 or less |"), (0.5, "| **2.50 (2.50 to 2.50)** | 2 or less")],
)
def test_a_ratio_above_its_goal_is_marked(tmp_path: Path, seconds: float, words: str) -> None:
    machine = {
        "machine": "a machine",
        "trial": cost(seconds, seconds),
        "peers": {"systemd-run": cost(0.2, 0.2)},
        "phases": {"run": 0.1, "slice": 0.2},
    }
    page = section(tmp_path, peers=[machine])
    assert words in page
    assert "`slice` 200 ms, `run` 100 ms" in page


def test_a_collector_that_slows_the_reader_is_marked(tmp_path: Path) -> None:
    trials = [trial("none", "sar", 100.0), trial("sar", "sar", 99.5)]
    trials += [trial("bpftrace", "bpftrace", 80.0, 0.7), trial("none", "bpftrace", 100.0)]
    trials += [trial("none", "iostat", 50.0)]
    trials += [trial("none", "sar", 10.0, reader="resident")]
    trials += [trial("sar", "sar", 20.0, reader="resident")]
    page = section(tmp_path, observers={"guest": trials})
    assert "| resident | sar | 1 | +100.0 % (+100.0 to +100.0) |" in page
    assert "| cold | sar | 1 | -0.5 % (-0.5 to -0.5) | +0.0 % (+0.0 to +0.0) | – |" in page
    assert "| cold | bpftrace | 1 | **-20.0 % (-20.0 to -20.0)** |" in page
    assert "700 ms at most beside the reader" in page


def test_what_grows_is_marked(tmp_path: Path) -> None:
    one = {"trials": 100, "fresh": "never", "plan_seconds": 0.0, "resume_seconds": 0.0}
    costs = [
        {**one, "run_seconds": 1.0, "most_bytes": 10**6},
        {**one, "trials": 1000, "run_seconds": 20.0, "most_bytes": 10**6},
    ]
    page = section(tmp_path, growth=costs)
    assert "| 100 | in one go | 10.0 ms | 1.00 |" in page
    assert "| 1,000 | in one go | 20.0 ms | **2.00** |" in page


@pytest.mark.parametrize(("seconds", "mark"), [(101.0, "10.0 ms"), (201.0, "**21.1 ms**")])
def test_a_report_whose_trials_cost_more_is_marked(
    tmp_path: Path, seconds: float, mark: str
) -> None:
    found = {1: 1.0, 1_000: 10.99, 10_000: seconds}
    costs = [
        {"trials": trials, "cpu_seconds": cost, "most_bytes": 10**8}
        for trials, cost in found.items()
    ]
    page = section(tmp_path, reports=costs)
    assert "| 1,000 | 11.0 s | 100 MB | 10.0 ms |" in page
    assert f"| 10,000 | {seconds:.1f} s | 100 MB | {mark} |" in page


def test_results_stay_until_they_are_measured_again(tmp_path: Path) -> None:
    (tmp_path / "growth.json").write_text("[1]")
    (tmp_path / "observers-guest.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    stored = {"peers": ["old"], "growth": ["old"], "observers": {"natively": ["old"]}}
    found = collected(tmp_path, stored)
    assert (found["peers"], found["growth"]) == (["old"], [1])
    assert found["observers"] == {"natively": ["old"], "guest": [{"a": 1}, {"a": 2}]}
