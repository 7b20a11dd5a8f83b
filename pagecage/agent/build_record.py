"""The record of an attempt, from whatever its phases kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from pagecage.agent.facts import is_emulated
from pagecage.agent.programs.registry import PROGRAMS
from pagecage.agent.trial_run import TrialRun
from pagecage.model.json_codec import to_json
from pagecage.model.record import RECORD_VERSION, Record, record_from_json
from pagecage.model.trial import environment_names
from pagecage.units import kernel_page_bytes

_SECTIONS = (
    "response",
    "counters",
    "cage",
    "cache",
    "data",
    "device",
    "machine",
    "machine_memory",
    "dirty_limits",
    "exit",
    "load",
)


def build_record(run: TrialRun) -> Record:
    """Return the record of an attempt; sections that no phase reached are empty."""
    request, trial, machine = run.session.request, run.trial, run.session.request.machine
    kept, ending = run.sections, run.ending
    sections = {name: dict(kept[name]) for name in _SECTIONS}
    plain = {
        "record_version": RECORD_VERSION,
        "run_id": request.run_id,
        "plan_sha256": request.plan_sha256,
        "host": request.host,
        "experiment": trial.experiment,
        "trial_id": trial.trial_id,
        "treatment": trial.treatment,
        "repeat": trial.repeat,
        "block": trial.block,
        "position": trial.position,
        "attempt": run.attempt,
        "outcome": ending.outcome,
        "phase": run.phase,
        "error": ending.error,
        "phases": run.timings,
        "boot_id": run.session.facts["boot_id"],
        "state_id": machine["state_id"],
        "restore_seq": machine["restore_seq"],
        "emulated": machine["emulated"] or is_emulated(run.session.facts),
        "page_bytes": kernel_page_bytes(),
        "measured": to_json(run.interval),
        "samples": run.samples,
        **sections,
        "disks": run.disks,
        "conditions": list(trial.conditions),
        "workload": _workload(run),
        "missed_requirements": [missed.to_json() for missed in ending.missed],
        "collectors": {name: result.to_json() for name, result in run.collected.items()},
        "harness": {**request.harness, "python": sys.version.split()[0]},
    }
    return record_from_json(plain, "the record")


def _workload(run: TrialRun) -> dict[str, Any]:
    kept = run.sections["workload"]
    argv, end, home = list(kept.get("argv", ())), dict(kept.get("end", {})), kept.get("home")
    command = run.trial.workload.command
    image = command.image if command else None
    program = shutil.which(argv[0]) if argv and not image else None  # the image's id tells it
    # Names alone: the values of an environment may be secrets.
    names = environment_names(image) if image else sorted(os.environ)
    inherited = (
        {"environment": names} if PROGRAMS[run.trial.workload.kind].inherits_environment else {}
    )
    return {
        "program": run.trial.workload.program,
        "argv": argv,
        "sha256": _sha256(Path(program)) if program else None,
        "checksum": end.get("checksum"),
        "checksum_ok": end.get("checksum_ok"),
        "end": end,
        **({"home": home} if home else {}),
        **inherited,
    }


def _sha256(program: Path) -> str | None:
    try:
        with program.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
