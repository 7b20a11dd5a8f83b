"""The line of an experiment, which needs no checks of its definition."""

from __future__ import annotations

import json
import sys
import tomllib

import pytest

from pagecage.definitions.experiment import ExperimentFile
from pagecage.definitions.reader import Definitions, known_programs
from pagecage.planning.plan import selected
from pagecage.planning.summary import DEFAULT_REPEATS, summary_of
from pagecage.process import run
from tests.tree import ROOT

DEFINED = Definitions(ROOT, known_programs(ROOT))


@pytest.mark.parametrize("name", DEFINED.experiment_names())
def test_a_summary_is_that_of_the_checked_definition(name: str) -> None:
    found = summary_of(tomllib.loads((ROOT / f"experiments/{name}.toml").read_text()))
    experiment = DEFINED.experiment(name)
    assert found.question == experiment.question
    assert found.treatments == len(selected(experiment, "emulated"))
    assert found.factors == {factor: list(one) for factor, one in experiment.factors.items()}
    size = experiment.sizes["emulated"]
    trials = found.treatments * (size.repeats or experiment.repeats)
    load = 30.0 if experiment.workload.kind == "service" else 0.0
    each = 4.0 + load + 0.2 * (size.max_seconds or 10.0)
    assert found.expected_seconds == pytest.approx(trials * each)


def test_the_default_of_the_repeats_is_that_of_a_definition() -> None:
    assert ExperimentFile.model_fields["repeats"].default == DEFAULT_REPEATS


def test_a_list_without_a_project_imports_no_checks_of_definitions() -> None:
    code = (
        "import json, sys; from pagecage.cli import listing; listing.list_experiments();"
        " print(json.dumps([*sys.modules]))"
    )
    done = run([sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    modules = json.loads(done.stdout.splitlines()[-1])
    assert not {"pydantic", "pagecage.definitions.reader", "pagecage.cli.options"} & {*modules}
