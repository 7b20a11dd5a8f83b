"""Cache states of the experiments of this checkout: every trial that reads a file names one."""

from __future__ import annotations

import pytest

from pagecage.cli.options import definitions
from pagecage.model.cage import UNCAGED, Cage
from pagecage.planning.plan import PlanOptions, make_trials

DEFINITIONS = definitions()


@pytest.mark.parametrize("name", DEFINITIONS.experiment_names())
def test_only_heap_trials_leave_the_cache_state_open(name: str) -> None:
    """Without a cache state, the preceding trial would decide the figure."""
    experiment = DEFINITIONS.experiment(name)
    cages = {cage: Cage(cage, {}, {}) for cage in experiment.cage_names() | {UNCAGED}}
    for trial in make_trials(experiment, cages, PlanOptions("emulated", "", 1, 1, "vm", "never")):
        if trial.cache == "any" and trial.dataset is not None:
            assert any(word.startswith("heap") for word in trial.workload.arguments), (
                trial.treatment
            )
