"""Data frames of traces and raw records."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from analysis.data import frames
from analysis.data.load import load_run
from analysis.views.notebook import Results
from pagecage.model.json_codec import Json
from pagecage.verdicts.counters import difference
from tests.builders.run_edits import edit
from tests.fixtures.runs import build_run


@pytest.mark.parametrize(
    ("names", "rates"), [(("dm-0", "vdb1", "vdb"), {3.0}), (("vdb",), {1.0}), (("other",), {1.0})]
)
def test_only_the_measured_disk_is_shown(
    tmp_path: Path, names: tuple[str, ...], rates: set[float]
) -> None:
    """Each second of iostat has one entry per name, with the rates 1, 2, ..."""

    def with_devices(data: Json) -> None:
        for row in data["sysstat"]["hosts"][0]["statistics"]:
            [entry] = row["disk"]
            row["disk"] = [
                {**entry, "disk_device": name, "r/s": float(number)}
                for number, name in enumerate(names, 1)
            ]

    run = load_run(build_run(tmp_path / "run"))
    for file in run.path.glob("trials/*/iostat.json"):
        edit(file, with_devices)
    assert set(frames.iostat_frame(run)["reads_per_second"]) == rates


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    def change(record: Json) -> None:
        record["samples"] = [{"iteration": n, "seconds": n + 0.5} for n in range(record["repeat"])]

    return Results(build_run(tmp_path_factory.mktemp("grains") / "run", change))


def test_a_row_is_a_trial_a_sample_or_a_counter(results: Results) -> None:
    assert len(results.trial_df) == 36
    assert len(results.sample_df) == 12 * (1 + 2 + 3)
    assert results.sample_df["seconds"].max() == 2.5
    assert not results.counter_df.duplicated(["trial_id", "source", "counter"]).any()


def test_a_counter_grows_by_what_the_verdicts_say(results: Results) -> None:
    frame = results.counter_df.set_index(["trial_id", "source", "counter"])
    for trial in results.run.trials:
        wanted = difference(trial.record, "cgroup", "memory.stat", "workingset_refault_file")
        row = (trial.record.trial_id, "cgroup", "memory.stat.workingset_refault_file")
        found = frame["grown"][row]
        assert math.isnan(found) if wanted is None else found == wanted


def test_a_killed_trial_has_what_was_read_at_the_very_end_alone(results: Results) -> None:
    killed = results.trial_df[results.trial_df["outcome"] == "oom_killed"]["trial_id"].iloc[0]
    rows = results.counter_df[results.counter_df["trial_id"] == killed]
    assert rows["before"].isna().all()
    assert rows.set_index("counter")["totals"]["memory.events.oom_kill"] == 1


def test_a_trace_has_the_rates_of_every_trial_that_was_measured(results: Results) -> None:
    measured = {trial.record.trial_id for trial in results.run.trials if trial.record.measured}
    assert set(results.trace_df["trial_id"]) == measured


def test_a_run_without_any_has_the_columns(tmp_path: Path) -> None:
    folder = build_run(
        tmp_path / "run", lambda record: record.update(counters={}, measured=None, traces={})
    )
    bare = Results(folder)
    assert load_run(folder).trials
    for frame in (bare.sample_df, bare.counter_df, bare.trace_df):
        assert frame.empty
        assert "trial_id" in frame
