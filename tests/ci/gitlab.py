"""A runner of `ci/gitlab.yml`: the lines of a job as GitLab's runner would run them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pagecage.process import Completed, run
from tests.ci.one_run import one_run_at_a_time
from tests.tree import ROOT

TEMPLATE = ROOT / "ci/gitlab.yml"


def job() -> dict[str, Any]:
    """Return the hidden job."""
    loaded: dict[str, Any] = yaml.safe_load(TEMPLATE.read_text())[".pagecage"]
    return loaded


def script() -> str:
    """Return the job's script: `before_script` and `script` run in one shell."""
    lines = [*job()["before_script"], *job()["script"]]
    return "\n".join(["set -eo pipefail", *lines])


@dataclass(frozen=True)
class FinishedJob:
    """A finished job, and the folder of its project."""

    done: Completed
    project: Path

    @property
    def report(self) -> Path:
        return self.project / "pagecage-report"

    def artifact(self, kind: str) -> Path:
        """Return the file of a report that GitLab reads."""
        return self.project / str(job()["artifacts"]["reports"][kind])


def run_job(project: Path, path: Path, environment: Mapping[str, str], **given: str) -> FinishedJob:
    """Run the job with variables of `PAGECAGE_`; a variable may name one that GitLab defines."""
    defaults = {name: str(value) for name, value in job()["variables"].items()}
    own = {f"PAGECAGE_{name.upper()}": value for name, value in given.items()}
    assert set(own) <= set(defaults), "the template does not know the variable"
    expanded = {
        name: value.replace("$CI_PROJECT_DIR", str(project))
        for name, value in (defaults | own).items()
    }
    search = f"{path}:{os.environ['PATH']}"
    with one_run_at_a_time():
        done = run(
            ["bash", "-c", script()],
            check=False,
            cwd=project,
            env={**environment, **expanded, "CI_PROJECT_DIR": str(project), "PATH": search},
            timeout_seconds=600,
        )
    return FinishedJob(done, project)
