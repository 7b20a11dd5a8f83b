"""Trials that no experiment has made, and their run in the guest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.model.plan import Plan
from pagecage.model.trial import Trial
from pagecage.runner.campaign import Campaign
from pagecage.runner.run_folder import RunFolder
from tests.builders.plans import HARNESS
from tests.tree import ROOT


def one_trial(trial_id: str, **fields: Any) -> Trial:
    usual = {"experiment": "test", "treatment": {"case": trial_id}, "repeat": 1}
    return Trial(**{"trial_id": trial_id, **usual, "block": 1, "position": 0, **fields})


def stored_plan(runs: Path, name: str, *trials: Trial) -> tuple[Plan, RunFolder]:
    """Return a plan of these trials, and the folder of its run."""
    plan = Plan(name, trials, {"fresh": "never", "experiment": "test", "harness": HARNESS})
    document = {**plan.document, "run_id": name, "trials": []}
    return plan, RunFolder.create(runs, replace(plan, document=document))


def run_in_guest(runs: Path, name: str, *trials: Trial) -> RunFolder:
    plan, folder = stored_plan(runs, name, *trials)
    Campaign(VmHost(), plan, folder, make_agent_package(ROOT), lambda _: None).run()
    return folder
