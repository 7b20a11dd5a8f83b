"""The GitHub Action with a gate, from the installed command to the verdict, in the guest."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.ci.action import Runner
from tests.ci.conftest import make_project, path

__all__ = ["path"]
pytestmark = [pytest.mark.vm, pytest.mark.long]
READER = """with open("data.bin", "rb") as file:
    while file.tell() < {mib} << 20 and file.read(1 << 20):
        pass
"""
"""Reads 1 MiB at a time, and stops before the end of the file: the kernel reads little ahead."""
GATED = {
    "host": "vm",
    "size": "smoke",
    "treatments": "cage=uncaged",
    "repeats": "3",
    "install": "false",
    "cache": "false",
    "include": "host_quiet",
}


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory, path: Path) -> Runner:
    top = tmp_path_factory.mktemp("runner")
    project = make_project(top / "workspace", path)
    (project / "data.bin").write_bytes(os.urandom(64 << 20))
    (project / "read.py").write_text(READER.format(mib=40))
    return Runner(project, top / "files", path)


@pytest.fixture(scope="module")
def baseline(runner: Runner) -> str:
    """The file that the artefact of a first run has, committed to the project."""
    job = runner.use(experiment="reader", artifact="first", **GATED)
    assert (job.status, job.outputs["verdict"]) == (0, "none"), job.logs
    shutil.copy(runner.artifacts / "first/baseline.json", runner.workspace)
    return "baseline.json"


def test_the_same_program_passes(runner: Runner, baseline: str) -> None:
    gate = {"baseline": baseline, "fail_if": "device_read_bytes > +5%"}
    job = runner.use(experiment="reader", artifact="same", **gate, **GATED)
    assert (job.status, job.outputs["verdict"]) == (0, "passed"), job.logs
    assert "Gate: **passed** (exit status 0)" in job.summary
    assert "```mermaid\nxychart-beta" in job.summary
    assert (runner.artifacts / "same/comparison.html").exists()


def test_a_program_that_reads_a_fifth_more_fails(runner: Runner, baseline: str) -> None:
    (runner.workspace / "read.py").write_text(READER.format(mib=48))
    gate = {"baseline": baseline, "fail_if": "device_read_bytes > +5%"}
    job = runner.use(experiment="reader", artifact="more", **gate, **GATED)
    assert (job.status, job.outputs["verdict"]) == (5, "failed"), job.logs
    assert "| failed | device_read_bytes > +5% |" in job.summary
    assert (runner.artifacts / "more/report.html").exists()
