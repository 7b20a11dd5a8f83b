"""The template for GitLab CI: the lines of its job are run as a runner would run them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from junitparser import JUnitXml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pagecage.process import run
from tests.builders.run_edits import resealed
from tests.checkout import environment
from tests.ci.conftest import make_project
from tests.ci.gitlab import TEMPLATE, FinishedJob, job, run_job, script

pytestmark = pytest.mark.slow
BIN = Path(sys.prefix) / "bin"
LIGHT = {"host": "local", "size": "smoke", "treatments": "cage=uncaged", "experiment": "reader"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, path: Path) -> Path:
    return make_project(tmp_path_factory.mktemp("gitlab") / "project", path)


@pytest.fixture(scope="module")
def finished(project: Path, path: Path) -> FinishedJob:
    return run_job(project, path, environment(project), repeats="3", **LIGHT)


def test_it_follows_the_schema_of_gitlab() -> None:
    schema = ("--builtin-schema", "vendor.gitlab-ci")
    done = run([BIN / "check-jsonschema", *schema, TEMPLATE], check=False)
    assert done.ok, done.stdout


def test_a_run_without_a_gate(finished: FinishedJob) -> None:
    assert finished.done.status == 0, finished.done.stderr
    assert finished.artifact("dotenv").read_text() == "PAGECAGE_VERDICT=none\n"
    assert "| cage | wall seconds |" in (finished.report / "run.md").read_text()
    assert (finished.report / "report.html").exists()
    assert json.loads((finished.report / "baseline.json").read_text())["experiment"] == "reader"


def test_gitlab_reads_its_reports(finished: FinishedJob) -> None:
    suites = JUnitXml.fromfile(str(finished.artifact("junit")))
    assert len([case for suite in suites for case in suite]) == 3
    families = text_string_to_metric_families(finished.artifact("metrics").read_text())
    assert "pagecage_trials" in {family.name for family in families}


def test_a_gate_that_cannot_be_decided_fails_the_job(
    project: Path, path: Path, finished: FinishedJob
) -> None:
    saved = json.loads((finished.report / "baseline.json").read_text())
    (project / "other.json").write_text(json.dumps(resealed({**saved, "size": "full"})))
    gates = {"baseline": "other.json", "fail_if": "wall_seconds > +5%\ndevice_reads > +5%"}
    found = run_job(project, path, environment(project), repeats="3", **gates, **LIGHT)
    assert found.done.status == 6, found.done.stderr
    assert found.artifact("dotenv").read_text() == "PAGECAGE_VERDICT=undecided\n"
    assert (found.report / "junit.xml").exists()


def test_a_bound_needs_no_baseline_and_counts_what_is_included(project: Path, path: Path) -> None:
    """On a busy machine it is decided by PAGECAGE_INCLUDE alone."""
    gate = {"fail_if": "wall_seconds < 1000s", "include": "host_quiet"}
    found = run_job(project, path, environment(project), repeats="3", **gate, **LIGHT)
    assert found.done.status == 5, found.done.stderr
    assert found.artifact("dotenv").read_text() == "PAGECAGE_VERDICT=failed\n"


def test_a_program_is_built_first(project: Path, path: Path) -> None:
    build = "echo built > made && false"
    found = run_job(project, path, environment(project), build=build, **LIGHT)
    assert found.done.status == 1
    assert (project / "made").read_text() == "built\n"
    assert "pagecage" not in found.done.stderr, "nothing was measured"


def test_the_text_of_a_variable_is_never_run(project: Path, path: Path) -> None:
    hostile = '"; touch hacked; $(touch hacked) `touch hacked`\ntouch hacked #'
    found = run_job(project, path, environment(project), **{**LIGHT, "treatments": hostile})
    assert found.done.status == 2
    assert not list(project.rglob("*hacked*"))


def test_reports_lie_in_the_artefacts_and_a_failed_job_keeps_them() -> None:
    artifacts = job()["artifacts"]
    assert artifacts["when"] == "always"
    assert all(path.startswith("pagecage-report/") for path in artifacts["reports"].values())


def test_shellcheck(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(f"#!/bin/bash\n{script()}")
    done = run([BIN / "shellcheck", path], check=False)
    assert done.ok, done.stdout
