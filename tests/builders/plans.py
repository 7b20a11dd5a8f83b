"""Plans of the stored definitions."""

from __future__ import annotations

from dataclasses import replace

from pagecage.model.cage import Cage
from pagecage.model.experiment import Experiment, Size
from pagecage.planning.plan import Plan, PlanOptions, make_plan

SIZES = {name: Size(2**20, 5.0) for name in ("full", "default", "emulated", "smoke")}

BASE = Experiment(
    name="test",
    question="?",
    program="pcread",
    workload_kind="handshake",
    arguments=("--file", "{file}"),
    min_memory_bytes=0,
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
