"""Rules that decide what is run next count the trials that the report includes, and no others.

The wall clock of one trial jumps between two of its samples. Its counters alone do not show that.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.cells import stopping_rule_status
from analysis.data.load import load_run
from pagecage.cli.predict import SourceTrial, stored_treatments
from pagecage.memory_search.rounds import measured_levels, with_rounds
from pagecage.model.run_files import read_plan
from pagecage.runner.run_folder import RunFolder
from pagecage.verdicts.stopping import enough_blocks
from tests.builders.known import known
from tests.builders.memory_runs import RUN_ID, document, run_all, stored
from tests.builders.timed_runs import COLD
from tests.fixtures.records import series
from tests.fixtures.runs import build_run
from tests.fixtures.small_runs import unpacked


def spoil(trace: Path) -> None:
    """Move the wall clock of the last half of the samples by a minute."""
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    for row in rows[len(rows) // 2 :]:
        row["wall"] += 60
    trace.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def steady(record: dict[str, Any]) -> None:
    if record["response"]:
        record["response"]["full_pass_seconds"] = 10 + 0.01 * record["repeat"]


def excluded(path: Path) -> list[str]:
    return [trial.record.trial_id for trial in load_run(path).trials if trial.verdicts.excluded]


def test_a_stopping_rule_needs_another_block_for_an_excluded_trial(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run", steady, repeats=8, until_ci=0.05)
    folder = RunFolder(path)
    plan, last = read_plan(path), folder.last_records()
    assert enough_blocks(plan, last, folder.judge(last)) == 6
    [first] = [one for one in last.values() if one.treatment == COLD and one.block == 1]
    spoil(path / first.traces["sampler"])
    assert enough_blocks(plan, last, RunFolder(path).judge(last)) == 7
    assert excluded(path) == [first.trial_id]
    assert stopping_rule_status(load_run(path)).endswith("reached after 7")


def test_a_search_for_memory_repeats_an_excluded_trial(tmp_path: Path) -> None:
    plan = document()
    last = {name: record for name, record in run_all(plan).items() if name.endswith("_own")}
    name = "trials/r1_own.1/sampler.jsonl"
    last["r1_own"] = replace(last["r1_own"], traces={"sampler": name})
    path = stored(tmp_path / RUN_ID, last)
    trace = path / name
    trace.parent.mkdir(parents=True)
    trace.write_text("".join(f"{json.dumps(row)}\n" for row in series(rbytes=19e6, rios=150)))
    assert excluded(path) == []
    whole = with_rounds(plan, last, RunFolder(path).judge(last))["trials"]
    spoil(trace)
    assert excluded(path) == ["r1_own"]
    judge = RunFolder(path).judge(last)
    measured = known(measured_levels(plan, last, judge))
    assert [trial.seconds is None for trial in measured.reference.trials] == [True, False, False]
    added = [trial["trial_id"] for trial in with_rounds(plan, last, judge)["trials"]]
    assert "r4_reference" in added
    assert "r4_reference" not in [trial["trial_id"] for trial in whole]


def test_a_prediction_rests_on_included_trials(tmp_path: Path) -> None:
    path = unpacked("lazy-start", tmp_path / "run")
    levels = {"disk": "customer-tenth", "read_ahead_kb": "32", "load": "lazy"}
    before = source(path, levels)
    assert before.is_counted
    spoil(path / before.record.traces["sampler"])
    assert before.record.trial_id in excluded(path)
    after = source(path, levels)
    assert (after.record.trial_id != before.record.trial_id) or not after.is_counted


def source(path: Path, levels: dict[str, str]) -> SourceTrial:
    _, [one] = stored_treatments(str(path), levels)
    return known(one.source)
