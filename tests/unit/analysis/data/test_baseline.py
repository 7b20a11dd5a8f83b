"""Baselines: comparing with one gives what comparing with its run gives, and no secret is in it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis.comparison import compare, load_runs
from analysis.data.baseline import baseline_of, load_baseline
from analysis.data.load import load_run
from analysis.exchange import responses_of
from analysis.stats import parse_gate
from pagecage.errors import PagecageError
from pagecage.model.json_codec import Json
from pagecage.model.run_files import MOST_PLAN_BYTES
from tests.builders.command_line import called
from tests.builders.run_edits import edit
from tests.builders.timed_runs import times
from tests.fixtures.runs import build_run
from tests.fixtures.small_runs import NAMES, unpacked

BYTES, TIME = parse_gate("device_read_bytes > +5%"), parse_gate("full_pass_seconds > +10%")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, a slower one, and the first one's baseline."""
    top = tmp_path_factory.mktemp("runs")
    build_run(top / "a", times(1, 1), repeats=8)
    build_run(top / "slow", times(1.3, 3), repeats=8)
    assert called(["compare", str(top / "a"), "--save-baseline", str(top / "a.json")]) == 0
    return top


def changed(folders: Path, tmp_path: Path, name: str, value: Any) -> Path:
    """Return the baseline with another fact or entry."""

    def change(data: Json) -> None:
        (data if name in data else data["facts"][0])[name] = value
        del data["baseline_sha256"]

    path = Path(shutil.copy(folders / "a.json", tmp_path / "changed.json"))
    edit(path, change)
    return path


def test_a_comparison_with_a_baseline_is_that_with_its_run(folders: Path) -> None:
    found, expected = (
        compare(load_runs([folders / name, folders / "slow"]), [BYTES, TIME])
        for name in ("a.json", "a")
    )
    assert [row.changes for row in found.rows] == [row.changes for row in expected.rows]
    assert found.overall == expected.overall
    assert found.gate_results == expected.gate_results
    assert found.obstacles == ()


def test_what_a_baseline_does_not_keep_is_no_difference(folders: Path, tmp_path: Path) -> None:
    other = changed(folders, tmp_path, "memory_bytes", 1 << 40)
    found = compare(load_runs([other, folders / "slow"]), [TIME])
    assert [row.name for row in found.differences if "–" in row.values] == []
    assert "memory_bytes" in [row.name for row in found.differences]


def test_a_baseline_keeps_which_responses_are_metrics_of_a_service(tmp_path: Path) -> None:
    run = load_run(unpacked("postgres-gp3", tmp_path / "run"))
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(baseline_of(run, responses_of(run))))
    assert run.metrics
    assert load_baseline(path).metrics == run.metrics


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_keeps_its_figures_and_no_names(name: str, tmp_path: Path) -> None:
    run = load_run(unpacked(name, tmp_path / "run"))
    text = json.dumps(baseline_of(run, responses_of(run)))
    (tmp_path / "b.json").write_text(text)
    [again] = load_runs([tmp_path / "b.json"])
    figures, found = (
        {
            trial.record.trial_id: (trial.is_included, trial.record.response.get(run.response))
            for trial in one.trials
        }
        for one in (run, again)
    )
    assert found == figures
    hostnames = {facts["hostname"] for facts in run.facts if facts.get("hostname")}
    assert not [word for word in (*hostnames, "mount_point", "data_dir") if f'"{word}"' in text]


@pytest.mark.parametrize(
    ("name", "value", "gate", "says"),
    [
        ("kernel", "6.1.0", BYTES, "kernel"),
        ("size", "full", BYTES, "size"),
        ("cpu_model", "another", TIME, "cpu_model"),
        ("cpus", 64, TIME, "cpus"),
    ],
)
def test_a_gate_on_what_is_not_comparable_is_undecided(
    folders: Path, tmp_path: Path, name: str, value: Any, gate: Any, says: str
) -> None:
    other = changed(folders, tmp_path, name, value)
    with pytest.raises(PagecageError, match=says) as caught:
        compare(load_runs([other, folders / "slow"]), [gate])
    assert caught.value.exit_code == 6


def test_bytes_are_comparable_on_another_machine(folders: Path, tmp_path: Path) -> None:
    other = changed(folders, tmp_path, "cpus", 64)
    compared = compare(load_runs([other, folders / "a"]), [BYTES])
    verdicts = [result.verdict for result in compared.gate_results]
    assert verdicts.count("passed") == 10, "two of twelve treatments are killed"


@pytest.mark.parametrize(
    "data", [{}, [], {"baseline_version": 1}, {"baseline_version": 99}, "text", None]
)
def test_a_file_that_is_no_baseline_is_refused(
    tmp_path: Path, data: Mapping[str, Any] | None
) -> None:
    (tmp_path / "b.json").write_text(json.dumps(data))
    with pytest.raises(PagecageError, match="baseline"):
        load_runs([tmp_path / "b.json"])


def test_a_baseline_of_any_length_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("{")
    os.truncate(tmp_path / "b.json", MOST_PLAN_BYTES + 1)
    with pytest.raises(PagecageError, match=r"b\.json is longer than 256 MiB"):
        load_baseline(tmp_path / "b.json")
