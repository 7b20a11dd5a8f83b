"""Sweeps: parsing of `--vary`, the cages and the experiment, and the report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.data.load import Run, load_run
from analysis.figures.over_limits import sweep_figure
from analysis.sweep import Sweep, sweep_of, sweep_rows, sweep_sentences
from analysis.views.notebook import Results
from pagecage.definitions.experiment import Experiment
from pagecage.definitions.reader import Definitions, known_programs
from pagecage.definitions.trial_tables import LevelTable
from pagecage.errors import PagecageError
from pagecage.model.cage import UNCAGED, BurstCredits, Cage, CreditBucket
from pagecage.model.plan import Plan
from pagecage.model.record import append_record, read_records
from pagecage.planning.plan import PlanOptions, make_plan
from pagecage.planning.sweep import cages_of, parse_vary, sweep_experiment
from tests.builders.command_line import called
from tests.builders.run_edits import drop_digests, with_limits_of
from tests.fixtures.stored import stored
from tests.tree import ROOT

TENTH = Cage(
    "tenth", {"IOReadBandwidthMax": 20_000_000, "IOReadIOPSMax": 500, "MemoryMax": 64 * 1024**2}
)
CHOSEN = {"load": "lazy-random"}


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return Definitions(ROOT, known_programs(ROOT)).experiment("customer-replay")


def test_values_are_sorted_and_the_cages_own_is_among_them() -> None:
    vary = parse_vary("IOReadIOPSMax=2000,250", TENTH)
    assert (dict(vary.values), vary.own) == ({"250": 250, "500": 500, "2000": 2000}, "500")
    assert list(vary.values) == ["250", "500", "2000"]


def test_sizes_keep_the_words_of_the_user() -> None:
    vary = parse_vary("IOReadBandwidthMax=20MB, 1.5MiB", TENTH)
    assert (dict(vary.values), vary.own) == ({"1.5MiB": 1_572_864, "20MB": 20_000_000}, "20MB")
    assert parse_vary("MemoryMax=32MiB", TENTH).own == "67108864B"


def test_a_cage_without_that_limit_has_no_value_of_its_own() -> None:
    assert parse_vary("CPUQuota=50,100", TENTH).own is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("IOReadIOPSMax", "does not name a limit"),
        ("IOPS=5,10", "does not name a limit"),
        ("MemorySwapMax=0", "does not name a limit"),
        ("IOReadIOPSMax=1k,2k", "is not a positive number"),
        ("IOReadIOPSMax=0,5", "is not a positive number"),
        ("MemoryMax=5,10", "no clear unit"),
        ("IOReadIOPSMax=500", "too few different values"),
        ("IOReadBandwidthMax=1MB,1000kB", "too few different values"),
        ("IOReadIOPSMax=", "too few different values"),
    ],
)
def test_a_variation_that_is_refused_has_a_hint(text: str, word: str) -> None:
    with pytest.raises(PagecageError, match=word) as caught:
        parse_vary(text, TENTH)
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_a_base_above_its_burst_is_refused() -> None:
    bursting = replace(TENTH, burst=BurstCredits("full", iops=CreditBucket(1000, 18_000)))
    with pytest.raises(PagecageError, match="not below the burst rate of 1000"):
        cages_of(bursting, parse_vary("IOReadIOPSMax=500,1000", bursting))
    assert len(cages_of(bursting, parse_vary("IOReadBandwidthMax=20MB,40MB", bursting))) == 2


def test_every_value_is_a_cage_with_only_that_change() -> None:
    cages = cages_of(TENTH, parse_vary("IOReadIOPSMax=250,1000", TENTH))
    assert [cage.properties["IOReadIOPSMax"] for cage in cages.values()] == [250, 500, 1000]
    assert {name: cage.name for name, cage in cages.items()} == {name: name for name in cages}
    assert all(
        {**cage.properties, "IOReadIOPSMax": 500} == dict(TENTH.properties)
        for cage in cages.values()
    )


def plan_of(experiment: Experiment, vary: str = "IOReadIOPSMax=250,1000,2000") -> Plan:
    varied = parse_vary(vary, TENTH)
    one = sweep_experiment(experiment, "tenth", varied, CHOSEN)
    choices = PlanOptions("smoke", "asked for", 1, 7, "vm", "never")
    cages, run_id = cages_of(TENTH, varied), "20261121T170000Z-sweep"
    plan = make_plan(run_id, one, cages, choices, "pagecage sweep", {"version": "0"})
    name, values = varied.property, dict(varied.values)
    about = {"property": name, "factor": name, "values": values, "own": varied.own}
    return replace(plan, document={**plan.document, "sweep": about})


def test_the_plan_has_one_trial_a_value_of_the_chosen_treatment(experiment: Experiment) -> None:
    plan = plan_of(experiment)
    assert plan.document["experiment"] == "sweep-customer-replay"
    assert sorted(t.cage.properties["IOReadIOPSMax"] for t in plan.trials) == [250, 500, 1000, 2000]
    assert all("random" in t.workload.arguments and t.cache == "cold" for t in plan.trials)
    assert {t.treatment["load"] for t in plan.trials} == {"lazy-random"}
    assert UNCAGED not in {t.cage.name for t in plan.trials}
    assert plan.document["definition"]["claims"] == []


def test_a_cold_start_stays_cold_under_every_value(experiment: Experiment) -> None:
    cold = {"uncaged": LevelTable(cache="cold"), "slow": LevelTable(cache="cold")}
    stored = {"cage": {name: {"cache": "cold"} for name in cold}}
    started = replace(
        experiment,
        factors={"cage": tuple(cold)},
        levels={"cage": cold},
        definition={**experiment.definition, "levels": stored},
    )
    varied = parse_vary("IOReadIOPSMax=250", TENTH)
    one = sweep_experiment(started, "tenth", varied, {})
    assert {level.cache for level in one.levels["IOReadIOPSMax"].values()} == {"cold"}
    assert one.definition["levels"]["IOReadIOPSMax"]["250"] == {"cache": "cold"}


@pytest.mark.parametrize(
    ("chosen", "word"),
    [
        ({}, "has several loads"),
        ({"load": "lazy"}, "has no load=lazy"),
        ({"cage": "x"}, "no cage=x"),
    ],
)
def test_a_treatment_that_is_missing_or_unknown(
    experiment: Experiment, chosen: dict[str, str], word: str
) -> None:
    with pytest.raises(PagecageError, match=word):
        sweep_experiment(experiment, "tenth", parse_vary("IOReadIOPSMax=250", TENTH), chosen)


def test_an_experiment_that_sets_its_own_cages_is_refused() -> None:
    other = Definitions(ROOT, known_programs(ROOT)).experiment("disk-latency")
    chosen = {name: levels[0] for name, levels in other.factors.items()}
    with pytest.raises(PagecageError, match="sets its cages in its levels"):
        sweep_experiment(other, "tenth", parse_vary("IOReadIOPSMax=250", TENTH), chosen)


# A run folder with two stored trials: one held back by 500 IOPS, and one without a binding cap.


@pytest.fixture
def folder(tmp_path: Path, experiment: Experiment) -> Path:
    plan = plan_of(experiment, "IOReadIOPSMax=500,100000")
    for trial in plan.trials:
        name = "iops" if trial.treatment["IOReadIOPSMax"] == "500" else "latency"
        record, series = stored(name)
        trace = f"trials/{name}.1/sampler.jsonl"
        (tmp_path / trace).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / trace).write_text("".join(json.dumps(row) + "\n" for row in series))
        changed = replace(
            record,
            trial_id=trial.trial_id,
            treatment=trial.treatment,
            traces={"sampler": trace},
            experiment=plan.document["experiment"],
            run_id=plan.run_id,
        )
        append_record(tmp_path / "records.jsonl", changed)
    document = with_limits_of(plan.document, read_records(tmp_path / "records.jsonl"))
    (tmp_path / "plan.json").write_text(json.dumps(document))
    drop_digests(tmp_path)
    return tmp_path


def sweep_in(run: Run) -> Sweep:
    sweep = sweep_of(run)
    assert sweep is not None
    return sweep


def figure_of(results: Results, sweep: Sweep) -> Figure | None:
    return sweep_figure(sweep, "IOReadIOPSMax", results.trial_df, results.styles)


def line(axes: Axes, label: str) -> tuple[list[float], list[float]]:
    """Return the coordinates of a line of the figure."""
    [found] = [line for line in axes.lines if line.get_label() == label]
    return list(np.asarray(found.get_xdata())), list(np.asarray(found.get_ydata()))


def test_measured_times_stand_beside_predictions_from_the_cages_own_value(folder: Path) -> None:
    sweep = sweep_in(load_run(folder))
    assert (sweep.property, sweep.source) == ("IOReadIOPSMax", "500")
    own, loose = sweep.points
    assert own.is_source
    assert own.measured is not None
    assert loose.measured is not None
    assert loose.predicted is not None
    assert own.measured == pytest.approx(65.56, abs=0.1)
    assert own.predicted == pytest.approx(own.measured, rel=0.02)
    assert (own.bound_by, own.binds) == ("iops", True)
    assert loose.measured == pytest.approx(14.85, abs=0.1)
    assert loose.binds is False
    assert loose.error == pytest.approx(loose.predicted / loose.measured - 1)
    assert sweep_rows(sweep)[0]["error"] == "(source)"


def test_what_a_sweep_says(folder: Path) -> None:
    told = sweep_sentences(sweep_in(load_run(folder)))
    assert told == ["The time still falls at 100,000, the largest value."]


def test_the_report_and_the_terminal_show_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Results(folder).sweep
    assert shown is not None
    assert "Sweep of one limit" in shown.text
    called(["show", str(folder)])
    assert "(source)" in capsys.readouterr().out
    called(["show", str(folder), "--json"])
    assert json.loads(capsys.readouterr().out)["sweep"]["source"] == "500"


def test_the_figure_has_the_times_the_cap_and_what_went_through(folder: Path) -> None:
    results = Results(folder)
    sweep = sweep_in(results.run)
    figure = figure_of(results, sweep)
    assert figure is not None
    left, right = figure.axes
    assert line(left, "measured") == ([500, 100_000], [point.measured for point in sweep.points])
    assert line(right, "the cap") == ([500, 100_000], [500, 100_000])
    _, (slow, loose) = line(right, "went through")
    assert slow == pytest.approx(500, rel=0.05)
    assert loose < 100_000 / 2
    assert results.sweep is not None
    assert "The time still falls at 100,000" in results.sweep.text.partition("aria-label=")[2]


def test_a_knee_is_drawn_and_one_value_makes_no_figure(folder: Path) -> None:
    results = Results(folder)
    sweep = sweep_in(results.run)
    with_knee = replace(sweep, knee=replace(sweep.knee, value=500.0))
    figure = figure_of(results, with_knee)
    assert figure is not None
    assert all("knee" in [text.get_text() for text in axes.texts] for axes in figure.axes)
    alone = replace(sweep, points=sweep.points[:1])
    assert figure_of(results, alone) is None


def test_excluded_trials_are_shown_but_not_counted(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for line in lines:
        if line["treatment"]["IOReadIOPSMax"] == "500":
            line["cage"]["read_back"]["io.max.riops"] = "max"
    (folder / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sweep = sweep_in(load_run(folder))
    assert [point.is_counted for point in sweep.points] == [False, True]
    assert sweep.source == "100000", "a trial that counts speaks before the cage's own"
    assert sweep_rows(sweep)[0]["measured"] == "(65.6 s) †"
    assert sweep.knee.reason == "fewer than two values have a time"
    assert sweep_sentences(sweep)[-1].startswith("In brackets: excluded trials alone")


def test_a_limit_that_is_not_an_io_cap_is_not_predicted(folder: Path) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    plan["sweep"] = {**plan["sweep"], "property": "MemoryMax"}
    run = load_run(folder)
    sweep = sweep_in(replace(run, plan=plan))
    assert all(point.predicted is None for point in sweep.points)


def test_where_levels_are_whole_cages_only_the_value_is_named(folder: Path) -> None:
    for name, before in (("plan.json", ""), ("records.jsonl", '"IOReadIOPSMax":')):
        text = (folder / name).read_text()
        for value in ("500", "100000"):
            text = text.replace(f'{before}"{value}"', f'{before}"tenth, IOReadIOPSMax {value}"')
        (folder / name).write_text(text)
    sweep = sweep_in(load_run(folder))
    assert [(point.level, point.name) for point in sweep.points] == [
        ("tenth, IOReadIOPSMax 500", "500"),
        ("tenth, IOReadIOPSMax 100000", "100000"),
    ]
    assert (sweep.source, sweep_rows(sweep)[1]["IOReadIOPSMax"]) == ("500", "100000")


def test_another_run_is_not_a_sweep(folder: Path) -> None:
    run = load_run(folder)
    assert sweep_of(replace(run, plan={**run.plan, "sweep": None})) is None
    assert Results(folder).diagnosis is not None
