"""The CI files of `pagecage init --ci`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from pagecage.definitions.project_writer import TEMPLATES, ci_files
from pagecage.process import Completed, run
from tests.checkout import environment
from tests.ci.action import action
from tests.ci.gitlab import job
from tests.tree import ROOT

BIN = Path(sys.prefix) / "bin"
REMOTES = {
    "git@github.com:a/b.git": "github",
    "https://me@github.example.org/a/b": "github",
    "ssh://git@gitlab.example.org:2222/a/b.git": "gitlab",
    "https://gitlab.com/github/b.git": "gitlab",
    "/srv/github/b.git": "none",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    run(["git", "init", "-q", tmp_path / "top"])
    (tmp_path / "top/sub").mkdir()
    return tmp_path / "top"


def init(path: Path, folder: Path, *words: str) -> Completed:
    return run(
        [path / "pagecage", "init", *words], check=False, cwd=folder, env=environment(folder)
    )


def made(repository: Path) -> set[str]:
    paths = (path for path in repository.rglob("*.yml") if ".git" not in path.parts)
    return {str(path.relative_to(repository)) for path in paths}


@pytest.mark.parametrize("remote", list(REMOTES))
def test_the_remote_chooses_the_system(repository: Path, path: Path, remote: str) -> None:
    run(["git", "-C", repository, "remote", "add", "origin", remote])
    done = init(path, repository, "--", "cat", "pagecage.toml")
    assert done.ok, done.stderr
    files = {
        "github": {".github/actions/pagecage/action.yml", ".github/workflows/pagecage-cat.yml"},
        "gitlab": {".gitlab-ci.yml", ".gitlab/pagecage.yml", ".gitlab/pagecage-cat.yml"},
        "none": set(),
    }
    assert made(repository) == files[REMOTES[remote]]
    assert ("choose with --ci" in done.stderr) is (REMOTES[remote] == "none")


def test_github_runs_the_experiment_with_inputs_of_the_action(repository: Path, path: Path) -> None:
    done = init(path, repository / "sub", "--ci", "github", "--name", "on", "--", "true")
    assert done.ok, done.stderr
    workflow = repository / ".github/workflows/pagecage-on.yml"
    accepted = run(
        [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", workflow],
        check=False,
    )
    assert accepted.ok, accepted.stdout
    used = yaml.safe_load(workflow.read_text())["jobs"]["measure"]["steps"][1]
    assert set(used["with"]) <= set(action()["inputs"])
    assert (used["with"]["experiment"], used["with"]["project"]) == ("on", "sub")
    copied = repository / used["uses"].removeprefix("./") / "action.yml"
    assert copied.read_text() == (ROOT / "action.yml").read_text()


def test_what_is_commented_out_are_inputs_too() -> None:
    """A user removes the marks."""
    for system, known in (("github", action()["inputs"]), ("gitlab", job()["variables"])):
        text = "\n".join(ci_files(system, "x", ".", ROOT).values())  # type: ignore[arg-type]
        offered = [
            line.strip().removeprefix("# ").partition(":")[0]
            for line in text.splitlines()
            if "# baseline: baselines" in line or "# fail-if: |" in line or "# PAGECAGE_" in line
        ]
        assert set(offered) & set(known), system


def test_gitlab_includes_the_job_and_replaces_no_pipeline(repository: Path, path: Path) -> None:
    assert init(path, repository, "--ci", "gitlab", "--name", "one", "--", "true").ok
    pipeline = repository / ".gitlab-ci.yml"
    for file in (pipeline, repository / ".gitlab/pagecage-one.yml"):
        schema = (BIN / "check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", file)
        assert run(schema, check=False).ok, file
    assert yaml.safe_load(pipeline.read_text()) == {
        "include": [{"local": "/.gitlab/pagecage-one.yml"}]
    }
    variables = yaml.safe_load((repository / ".gitlab/pagecage-one.yml").read_text())[
        "pagecage-one"
    ]
    assert set(variables["variables"]) <= set(job()["variables"])
    before = pipeline.read_text()
    again = init(path, repository, "--ci", "gitlab", "--name", "two", "--", "true")
    assert "local: /.gitlab/pagecage-two.yml" in again.stderr
    assert pipeline.read_text() == before


@pytest.mark.parametrize("language", ["rust", "c", "python"])
def test_a_program_is_built_before_it_is_measured(
    repository: Path, path: Path, language: str
) -> None:
    template = TEMPLATES[language]
    for system in ("github", "gitlab"):
        words = ("--ci", system, "--template", language, "--name", system)
        done = init(path, repository / "sub", *words)
        assert done.ok, done.stderr
    workflow = yaml.safe_load((repository / ".github/workflows/pagecage-github.yml").read_text())
    steps = [step for step in workflow["jobs"]["measure"]["steps"] if "run" in step]
    built = [{"run": template.build, "working-directory": "sub/workloads/github"}]
    assert steps == (built if template.build else [])
    written = yaml.safe_load((repository / ".gitlab/pagecage-gitlab.yml").read_text())
    variables = written["pagecage-gitlab"]["variables"]
    assert set(variables) <= set(job()["variables"])
    assert variables.get("PAGECAGE_PACKAGES", "") == template.packages
    if template.build:
        command = ["sh", "-ec", variables["PAGECAGE_BUILD"]]
        run(command, cwd=repository / "sub", timeout_seconds=300)
        assert (repository / "sub/workloads/gitlab" / template.program).exists()


def test_without_git_the_files_are_the_projects(tmp_path: Path, path: Path) -> None:
    assert init(path, tmp_path, "--ci", "github", "--", "true").ok
    assert (tmp_path / ".github/workflows/pagecage-true.yml").exists()
