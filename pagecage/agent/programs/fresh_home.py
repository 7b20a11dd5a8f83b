"""An empty home directory for a trial, without what a program left in its own before."""

from __future__ import annotations

import shutil
from pathlib import Path

from pagecage.agent.trial_run import TrialRun
from pagecage.model.trial import FRESH_HOME, CommandSpec

HOME = "pagecage-home"
"""Name of the directory in the data directory: on the disk, since caches in memory would cost
the trial's."""
_ELSEWHERE = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
"""Variables that name directories besides HOME (XDG Base Directory Specification)."""


def fresh_home(run: TrialRun, spec: CommandSpec) -> list[str]:
    """Make an empty home if the trial wants one; return the words that start a program with it.

    A container has the home of its image, which is fresh in each. The record says which it was.
    """
    if spec.image:
        run.keep("workload", home="image")
        return []
    if FRESH_HOME not in run.trial.conditions:
        run.keep("workload", home="inherited")
        return []
    home = Path(run.session.request.data_dir) / HOME
    shutil.rmtree(home, ignore_errors=True)  # of an agent that was killed
    home.mkdir(mode=0o700)
    run.cleanup.callback(shutil.rmtree, home, ignore_errors=True)
    run.keep("workload", home="fresh")
    return ["env", *(f"--unset={name}" for name in _ELSEWHERE), f"HOME={home}"]
