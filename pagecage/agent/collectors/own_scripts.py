"""bpftrace scripts of the definition: their command, and the check before the first trial.

A script is run with a probe added that prints a line four times a second. bpftrace attaches the
probes in their order, so that the first such line proves that all of them are attached.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from pagecage.agent.collectors.collector import CollectorContext
from pagecage.agent.collectors.own_output import ArrivedLine
from pagecage.agent.collectors.tracer import first_error
from pagecage.errors import PagecageError
from pagecage.process import Completed, find_tool, run

TICK = b"PAGECAGE_TICK"
"""The text of the added probe's line."""
_ADDED = f'\ninterval:ms:250 {{ printf("{TICK.decode()}\\n"); }}\n'
_IN_CGROUP = re.compile(r"\bcgroup\s*==\s*\$1(?!\d)")
# bpftrace 0.17 resolves the last structure of so long a chain only if it is named by a cast.
_NODE = "((struct task_struct *)curtask)->cgroups->dfl_cgrp->self.parent->cgroup->kn"
_PARENT = f"((struct kernfs_node *){_NODE})->id"
_IN_TRIAL = f"(cgroup == $1 || {_PARENT} == $1)"
"""Programs run in a scope below the trial's slice, which does not exist before they start."""
_CHECK_SECONDS = 120.0
_MINOR_BITS = 20


def script_command(script: str, context: CollectorContext) -> tuple[list[str], str | None]:
    """Return the command that runs a script, and the reason why it cannot be run, or None.

    `$1` of the script is the id of the trial's cgroup, 0 without one; `$2` is the kernel's number
    of the measured disk, as tracepoints of the block layer have it.
    """
    if not find_tool("bpftrace"):
        return [], "bpftrace is not installed"
    path = context.directory / Path(script).name
    path.write_text(with_trial_filter(Path(script).read_text()) + _ADDED)
    cgroup = context.processes.cgroup
    cgroup_id = cgroup.identity() if cgroup else None
    numbers = [str(cgroup_id or 0), str(_device_number(context.disk.maj_min))]
    return ["bpftrace", "-f", "json", str(path), *numbers], None


def with_trial_filter(text: str) -> str:
    """Return a script whose `cgroup == $1` also holds one level below the trial's cgroup."""
    return _IN_CGROUP.sub(lambda _: _IN_TRIAL, text)


def is_tick(line: ArrivedLine) -> bool:
    """Return whether a line is the added probe's."""
    data = line.data or {}
    return data.get("type") == "printf" and str(data.get("data")).strip() == TICK.decode()


def check_script(script: Path) -> str | None:
    """Return bpftrace's first error about a script, with its place; None if it can be attached.

    All probes are attached and detached again. Raises nothing: a check that takes too long fails.
    """
    try:
        done = _dry_run("--dry-run", script)
        if "unrecognized option" in done.stderr:  # before 0.19, -d did not attach
            done = _dry_run("-d", script)
    except PagecageError as error:
        return error.message
    return None if done.ok else first_error(done.stderr or done.stdout)


def _dry_run(option: str, script: Path) -> Completed:
    with TemporaryDirectory(prefix="pagecage-script-") as folder:
        path = Path(folder, script.name)
        path.write_text(with_trial_filter(script.read_text()))
        argv = ["bpftrace", option, str(path), "0", "0"]
        return run(argv, check=False, timeout_seconds=_CHECK_SECONDS)


def _device_number(maj_min: str) -> int:
    major, _, minor = maj_min.partition(":")
    return int(major) << _MINOR_BITS | int(minor)
