"""`kind = "service"` in a definition, from the file to the trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pagecage.definitions.experiment_file import ExperimentFile
from pagecage.definitions.reader import Definitions
from pagecage.errors import PagecageError
from pagecage.model.cage import Cage
from pagecage.model.services import MetricPattern, ServiceSpec
from pagecage.model.trial import CommandSpec, trial_from_json, trial_to_json
from pagecage.planning.plan import PlanOptions, make_trials

TABLES = """
question = "?"
response = "tps"
[workload]
program = "./server"
kind = "service"
arguments = ["{data_dir}/x"]
data_paths = ["{data_dir}/x"]
ready_port = 5432
load = ["./load", "-n", "{clients}", "{data_dir}"]
warm_up_seconds = 10
settle_seconds = 0.5
ready_timeout_seconds = 30
stop_signal = "INT"
[workload.metrics]
tps = 'tps = ([0-9.]+)'
share = { pattern = "$.share", higher_is_better = false }
[factors]
cage = ["uncaged"]
[sizes]
full = { places = { clients = 8 } }
default = { places = { clients = 4 } }
emulated = { places = { clients = 2 } }
smoke = { places = { clients = 1 } }
"""


def definitions(folder: Path, text: str) -> Definitions:
    (folder / "experiments").mkdir()
    (folder / "experiments/own.toml").write_text(text)
    (folder / "cgroups").mkdir()
    (folder / "cgroups/uncaged.toml").write_text('about = "no limits"\n')
    return Definitions(folder, [])


def test_from_the_file_to_the_trial(tmp_path: Path) -> None:
    experiment = definitions(tmp_path, TABLES).experiment("own")
    cages = {"uncaged": Cage("uncaged", {})}
    [trial] = make_trials(experiment, cages, PlanOptions("full", "", 1, 1, "vm", "never"))
    assert trial.workload.kind == "service"
    assert trial.workload.command == CommandSpec(("{data_dir}/x",), None, 5432)
    assert trial.workload.service == ServiceSpec(
        ("./load", "-n", "8", "{data_dir}"),
        {"tps": MetricPattern("tps = ([0-9.]+)"), "share": MetricPattern("$.share", False)},
        10.0,
        0.5,
        30.0,
        "INT",
    )
    assert trial_from_json(trial_to_json(trial)) == trial


LEVELS = """
[levels.mix]
reads = { load_arguments = ["-S"] }
both = { load_arguments = [] }
"""


def test_a_level_may_change_the_load(tmp_path: Path) -> None:
    text = TABLES.replace('cage = ["uncaged"]', 'cage = ["uncaged"]\nmix = ["reads", "both"]')
    experiment = definitions(tmp_path, text + LEVELS).experiment("own")
    options = PlanOptions("full", "", 1, 1, "vm", "never")
    trials = make_trials(experiment, {"uncaged": Cage("uncaged", {})}, options)
    loads = {one.treatment["mix"]: one.workload.service.load for one in trials}  # type: ignore[union-attr]
    assert loads["both"] == ("./load", "-n", "8", "{data_dir}")
    assert loads["reads"] == (*loads["both"], "-S")


def test_a_command_has_no_load_to_change() -> None:
    levels = {"cage": {"uncaged": {"load_arguments": ["-S"]}}}
    with pytest.raises(ValueError, match="load_arguments apply only to workloads of kind"):
        workload(kind="command", load=[], metrics={}, response="wall_seconds", levels=levels)


def test_an_error_names_the_key(tmp_path: Path) -> None:
    wrong = TABLES.replace("tps = ([0-9.]+)", "tps = [0-9.]+")
    with pytest.raises(PagecageError, match=r"own.toml: workload.metrics.tps.* has no groups"):
        definitions(tmp_path, wrong).experiment("own")


def workload(**changes: Any) -> ExperimentFile:
    table = {
        "program": "./server",
        "kind": "service",
        "load": ["./load"],
        "ready_port": 80,
        "metrics": {"tps": "(.)"},
        **changes,
    }
    response, levels = table.pop("response", "tps"), table.pop("levels", {})
    sizes: dict[str, object] = {name: {} for name in ("full", "default", "emulated", "smoke")}
    return ExperimentFile.model_validate(
        {
            "question": "?",
            "response": response,
            "factors": {"cage": ["uncaged"]},
            "levels": levels,
            "sizes": sizes,
            "workload": table,
        }
    )


@pytest.mark.parametrize("response", ["tps", "ready_seconds", "wall_seconds", "device_reads"])
def test_a_response_may_be_a_metric_or_one_of_every_trial(response: str) -> None:
    assert workload(response=response).response == response


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"load": []}, "needs `load`"),
        ({"ready_port": None}, "needs ready_when or ready_port"),
        ({"ready_when": "x"}, "remove one of them"),
        ({"metrics": {"tps": "x"}}, "has no groups"),
        ({"metrics": {"tps": "(("}}, "not a regular expression"),
        ({"metrics": {"tps": "$.x["}}, "not a JSON path"),
        ({"metrics": {"TPS": "(.)"}}, "not the name of a metric"),
        ({"metrics": {"wall_seconds": "(.)"}}, "a response of every trial"),
        ({"metrics": {"device_reads": "(.)"}}, "a response of every trial"),
        ({"response": "tpm"}, "no metric 'tpm'; known: tps, ready_seconds, wall_seconds"),
        ({"warm_up_seconds": -1}, "greater than or equal to 0"),
        ({"stop_signal": "USR1"}, "'TERM', 'INT'"),
        ({"kind": "command"}, 'load applies only to kind "service"'),
        ({"kind": "handshake", "load": []}, 'ready_port applies only to kind "command" or'),
    ],
)
def test_what_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("(", r"\(")):
        workload(**changes)
