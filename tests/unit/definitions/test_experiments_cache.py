"""The experiments of this checkout: what reads a file says in which state of the page cache it wants it."""

from __future__ import annotations

import pytest

from pagecage.cli.run_options import definitions
from pagecage.model.cage import UNCAGED, Cage
from pagecage.planning.plan import PlanOptions, make_trials

DEFINITIONS = definitions()


@pytest.mark.parametrize("name", DEFINITIONS.experiment_names())
def test_only_the_heap_is_read_whatever_the_cache_holds(name: str) -> None:
    """A trial that does not say gets what the one before it left, so that the order decides its figure."""
    experiment = DEFINITIONS.experiment(name)
    cages = {cage: Cage(cage, {}, {}) for cage in experiment.cage_names() | {UNCAGED}}
    for trial in make_trials(experiment, cages, PlanOptions("emulated", "", 1, 1, "vm", "never")):
        if trial.cache == "any" and trial.dataset is not None:
            assert any(word.startswith("heap") for word in trial.workload.arguments), trial.treatment
