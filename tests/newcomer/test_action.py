"""The GitHub Action on a machine that has only the wheel: it installs pagecage and runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ci.action import Runner
from tests.newcomer.test_wheel import wheel

__all__ = ["wheel"]
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def test_it_installs_the_wheel_and_runs_an_experiment(wheel: Path, tmp_path: Path) -> None:
    workspace, empty, home = (tmp_path / name for name in ("workspace", "bin", "home"))
    for folder in (workspace, empty, home):
        folder.mkdir()
    variables = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    runner = Runner(workspace, tmp_path / "files", empty, variables, timeout_seconds=1500)
    light = {"host": "local", "size": "smoke", "treatments": "cage=uncaged", "cache": "false"}
    job = runner.use(experiment="smoke", wheel=str(wheel), **light)
    assert (job.status, job.outputs["verdict"]) == (0, "none"), job.logs
    assert "Install pagecage" in job.ran
    assert "Build the wheel" not in job.ran
    assert (runner.artifacts / "pagecage/report.html").exists()
    assert (runner.files / "temp/pagecage/bin/pagecage").exists()
