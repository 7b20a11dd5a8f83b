"""The plan of a run: its trials in order, and plan.json."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

from pagecage.model.json_codec import Json, JsonView
from pagecage.model.run_files import plan_sha256
from pagecage.model.trial import Trial, trial_from_json


@dataclass(frozen=True)
class Plan:
    """The trials of a run in order. `document` is plan.json without its hash."""

    run_id: str
    trials: tuple[Trial, ...]
    document: JsonView

    @cached_property
    def sha256(self) -> str:
        """The hash of the document; a resumed run refuses a plan whose hash has changed."""
        return plan_sha256(self.document)


def plan_to_json(plan: Plan) -> Json:
    """Return plan.json: the document and its hash."""
    return {**plan.document, "plan_sha256": plan.sha256}


def plan_from_json(data: JsonView) -> Plan:
    """Return the plan from plan.json, without a check of the hash."""
    document = {key: value for key, value in data.items() if key != "plan_sha256"}
    return Plan(document["run_id"], tuple(map(trial_from_json, document["trials"])), document)


def blocks(trials: tuple[Trial, ...], fresh: str) -> list[tuple[Trial, ...]]:
    """Group the trials that share a machine state: all, those of a block, or each trial alone."""
    if fresh == "trial":
        return [(trial,) for trial in trials]
    if fresh == "block":
        groups = itertools.groupby(trials, key=lambda trial: trial.block)
        return [tuple(group) for _, group in groups]
    return [trials] if trials else []
