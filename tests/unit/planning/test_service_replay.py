"""A replayed server as an experiment: its response, its findings, and a sweep of its metric."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.articles.findings import evaluate_findings
from analysis.data.load import Run, load_run
from analysis.sweep import sweep_of, sweep_rows, sweep_sentences
from pagecage.model.cage import Cage
from pagecage.model.record import append_record, read_records
from pagecage.model.services import MetricPattern, ServiceSpec
from pagecage.model.trial import CommandSpec
from pagecage.planning.plan import PlanOptions, make_plan
from pagecage.planning.replay import SIZE, ReplaySpec, make_experiment
from tests.builders.plans import HARNESS
from tests.builders.run_edits import with_limits_of
from tests.fixtures.stored import stored

PATTERNS = {"tps": MetricPattern("tps = (.)"), "p99_ms": MetricPattern("$.p99")}
SERVICE = ServiceSpec(("load", "a b"), PATTERNS, 10.0, 1.0)
CAGES = ("uncaged", "tenth")


def replay(service: ServiceSpec = SERVICE, cages: tuple[str, ...] = CAGES) -> ReplaySpec:
    command = CommandSpec(ready_port=80, is_literal=True)
    argv = ("server", "x")
    spec = ReplaySpec(argv, argv, command, cages, "cold", ())
    return replace(spec, service=service, typed_load=service.load)


def test_its_first_metric_is_the_response() -> None:
    made = make_experiment(replay())
    assert (made.response, made.workload_kind, made.service) == ("tps", "service", SERVICE)
    assert make_experiment(replay(replace(SERVICE, metrics={}))).response == "wall_seconds"
    assert made.question == "How does `server x` serve the load `load 'a b'` in uncaged and tenth?"


def test_a_definition_has_what_a_file_would_hold() -> None:
    workload = make_experiment(replay()).definition["workload"]
    assert workload["load"] == ["load", "a b"]
    assert workload["metrics"] == {"tps": "tps = (.)", "p99_ms": "$.p99"}
    assert (workload["warm_up_seconds"], workload["settle_seconds"]) == (10.0, 1.0)


def run_of(folder: Path, figures: dict[str, dict[str, float]], about: dict[str, object]) -> Run:
    """Return a run whose trials have these figures, by cage; else they are a stored trial."""
    cages = {name: Cage(name, {"IOReadIOPSMax": 500}) for name in figures}
    options = PlanOptions(SIZE, "", 1, 7, "vm", "never")
    made = make_experiment(replay(cages=tuple(figures)))
    plan = make_plan("20261121T100000Z-replay-server-vm", made, cages, options, "", HARNESS)
    plan = replace(plan, document={**plan.document, **about})
    record, series = stored("iops")
    trace = "trials/all.1/sampler.jsonl"
    (folder / trace).parent.mkdir(parents=True)
    (folder / trace).write_text("".join(json.dumps(row) + "\n" for row in series))
    for trial in plan.trials:
        own = figures[trial.treatment["cage"]]
        changed = replace(
            record,
            trial_id=trial.trial_id,
            treatment=trial.treatment,
            traces={"sampler": trace},
            experiment=plan.document["experiment"],
            run_id=plan.run_id,
            response=own,
        )
        append_record(folder / "records.jsonl", changed)
    document = with_limits_of(plan.document, read_records(folder / "records.jsonl"))
    (folder / "plan.json").write_text(json.dumps(document))
    return load_run(folder)


def test_findings_say_what_the_cage_costs(tmp_path: Path) -> None:
    """Each ratio is above 1 where the cage costs something."""
    free = {"tps": 310.0, "p99_ms": 4.0, "ready_seconds": 1.0}
    caged = {"tps": 100.0, "p99_ms": 12.0, "ready_seconds": 2.0}
    run = run_of(tmp_path, {"uncaged": free, "tenth": caged}, {})
    assert [finding.sentence for finding in evaluate_findings(run)] == [
        "Without limits, tps is 3.1 times as high as in `tenth`.",
        "In `tenth`, p99_ms is 3 times as high as without limits.",
        "In `tenth` it takes 2 times as long until the server serves.",
    ]


def sweep_about(response: str) -> dict[str, object]:
    values = {f"tenth, IOReadIOPSMax {n}": n for n in (500, 1000, 2000)}
    definition = {**make_experiment(replay(cages=tuple(values))).definition, "response": response}
    about = {"property": "IOReadIOPSMax", "factor": "cage", "values": values, "own": None}
    return {"sweep": about, "definition": definition}


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ((500.0, 990.0, 1010.0), "The knee is at IOReadIOPSMax 1,000: above 1,000 the metric tps"),
        ((500.0, 1000.0, 2000.0), "The metric tps still rises at 2,000, the largest value."),
        ((500.0, 505.0, 490.0), "The metric tps is the same from 500 upwards"),
    ],
)
def test_a_sweep_shows_the_metric(
    tmp_path: Path, figures: tuple[float, float, float], says: str
) -> None:
    about = sweep_about("tps")
    levels = dict(zip(about["sweep"]["values"], figures, strict=True))  # type: ignore[index]
    sweep = sweep_of(run_of(tmp_path, {level: {"tps": n} for level, n in levels.items()}, about))
    assert sweep is not None
    assert sweep.response == "tps"
    assert [point.measured for point in sweep.points] == [*figures]
    assert sweep_rows(sweep)[0]["measured"] == "500"
    assert sweep.points[1].predicted == pytest.approx(2 * figures[0], rel=0.05)
    assert sweep_sentences(sweep)[0].startswith(says)


def test_a_latency_has_a_knee_but_is_not_predicted(tmp_path: Path) -> None:
    about = sweep_about("p99_ms")
    levels = dict(zip(about["sweep"]["values"], (8.0, 4.0, 4.1), strict=True))  # type: ignore[index]
    sweep = sweep_of(run_of(tmp_path, {level: {"p99_ms": n} for level, n in levels.items()}, about))
    assert sweep is not None
    assert all(point.predicted is None for point in sweep.points)
    assert sweep_rows(sweep)[0]["measured"] == "8 ms"
    assert "above 1,000 the metric p99_ms falls by 10% at most" in sweep_sentences(sweep)[0]
