"""Every experiment at its smallest in the guest: each trial has its answer, or names what the guest
lacks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.planning.options import definitions
from pagecage.planning.plan import selected
from pagecage.process import run
from pagecage.runner.run_folder import RunFolder
from pagecage.units import format_seconds
from tests.builders.command_line import pagecage_argv
from tests.tree import ROOT

NAMES = definitions().experiment_names()
MOST_TREATMENTS = 8
WHOLE_TABLES = {"constrained-random"}  # its twelve cells are one table, on which other tests rely
_LONGEST_SECONDS = 900.0


@pytest.fixture(scope="module")
def seconds(request: pytest.FixtureRequest) -> Iterator[dict[str, float]]:
    """The seconds of each experiment, printed after the last one."""
    took: dict[str, float] = {}
    yield took
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        for name, spent in took.items():
            print(f"\n{name:<24} {format_seconds(spent)}", end="")
        print(f"\n{len(took)} experiments at smoke: {format_seconds(sum(took.values()))}")


def expected_wrong(name: str) -> list[dict[str, str]]:
    """Return the levels whose answers may be wrong because a claim or a finding expects that:
    methods by name.
    """
    definition = definitions().experiment(name).definition
    tables = [*definition.get("claims", []), *definition.get("findings", [])]
    wheres = [table["where"] for table in tables if table.get("with_wrong_answers")]
    return [{"method": where["method"]} for where in wheres if "method" in where]


@pytest.mark.parametrize("name", NAMES)
def test_a_smoke_run_is_small(name: str) -> None:
    experiment = definitions().experiment(name)
    largest = max(map(len, experiment.factors.values()))
    chosen = selected(experiment, "smoke")
    assert len(chosen) <= max(MOST_TREATMENTS, largest) or name in WHOLE_TABLES
    assert (experiment.sizes["smoke"].repeats or experiment.repeats) == 1


@pytest.mark.vm
@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_every_trial_has_its_answer(name: str, tmp_path: Path, seconds: dict[str, float]) -> None:
    begin = time.monotonic()
    argv = pagecage_argv("run", name, "--host", "vm", "--dataset", "smoke")
    env = {"PAGECAGE_RUNS": str(tmp_path)}
    done = run(argv, check=False, timeout_seconds=_LONGEST_SECONDS, env=env, cwd=ROOT)
    seconds[name] = time.monotonic() - begin
    assert done.status == 0, done.stderr
    records = list(RunFolder(tmp_path / f"latest-{name}").last_records().values())
    assert {r.trial_id for r in records if r.is_final} == {r.trial_id for r in records}
    assert len(records) >= len(selected(definitions().experiment(name), "smoke"))
    wrong = expected_wrong(name)
    for record in records:
        is_expected = any(where.items() <= dict(record.treatment).items() for where in wrong)
        answers = {"ok", "oom_killed", "requirement_missed"}
        answers |= {"wrong_answer"} if is_expected else set()
        assert record.outcome in answers, (record.trial_id, record.error)
        assert all(missed.reason for missed in record.missed_requirements)
        assert bool(record.missed_requirements) == (record.outcome == "requirement_missed")
