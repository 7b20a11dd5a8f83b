"""Plans of the stored definitions."""

from __future__ import annotations

from dataclasses import replace

from pagecage.definitions.experiment import Experiment
from pagecage.definitions.trial_tables import LevelTable, SizeTable
from pagecage.model.cage import Cage
from pagecage.model.plan import Plan
from pagecage.model.trial import Workload
from pagecage.planning.plan import PlanOptions, make_plan


def size_table(**table: object) -> SizeTable:
    return SizeTable.model_validate({"treatments": "all", **table})


def level_table(*arguments: str, **table: object) -> LevelTable:
    return LevelTable.model_validate({"arguments": [*arguments], **table})


SIZES = {
    name: size_table(dataset="1MiB", max_seconds=5.0)
    for name in ("full", "default", "emulated", "smoke")
}

BASE = Experiment(
    name="test",
    question="?",
    workload=Workload("pcread", ("--file", "{file}")),
    response="read_seconds",
    repeats=3,
    fresh="never",
    read_ahead_kb=128,
    collectors=("iostat",),
    factors={},
    levels={},
    exclude=(),
    sizes=SIZES,
    claims=(),
    definition_sha256="0" * 64,
    definition={"question": "?"},
)
CHOICES = PlanOptions("smoke", "asked for", 2, 7, "vm", "never")
HARNESS = {"version": "0", "git_revision": None, "git_dirty": None}
CAGES = {name: Cage(name, {"MemoryMax": 4096}) for name in ("uncaged", "tenth", "tight")}


RUN_ID = "20261121T100000Z-test-vm"


def plan_of(
    experiment: Experiment = BASE, wanted: PlanOptions = CHOICES, run_id: str = RUN_ID
) -> Plan:
    factors = {name: list(levels) for name, levels in experiment.factors.items()}
    experiment = replace(experiment, definition={"factors": factors, **experiment.definition})
    return make_plan(run_id, experiment, CAGES, wanted, "pagecage run test", HARNESS)
