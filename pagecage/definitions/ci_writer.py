"""The files with which a project's experiment runs in continuous integration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

CiSystem = Literal["github", "gitlab", "none"]
_ACTION = ".github/actions/pagecage/action.yml"
_TEMPLATE = ".gitlab/pagecage.yml"
_WORKFLOW = """---
# Runs the experiment {name}, and fails if it reads more than its baseline.
name: pagecage {name}
on:
  push:
  pull_request:
permissions:
  contents: read
jobs:
  measure:
    runs-on: ubuntu-24.04
    timeout-minutes: 60
    steps:
      - uses: actions/checkout@v4
{build}      - uses: ./.github/actions/pagecage
        with:
          experiment: {quoted}
          project: {project}
          size: smoke
          repeats: "5"
          # A variable of the repository: the address of a wheel of pagecage, or its path here.
          wheel: ${{{{ vars.PAGECAGE_WHEEL }}}}
          # The artefact of the first run has baseline.json. Commit it, and remove the four marks:
          # baseline: baselines/{name}.json
          # fail-if: |
          #   device_read_bytes > +5%
          #   major_faults > +5%
"""
_JOB = """---
# Runs the experiment {name}, and fails if it reads more than its baseline.
# PAGECAGE_WHEEL is a CI/CD variable: the address of a wheel of pagecage, or its path here.
include:
  - local: /{template}
pagecage-{name}:
  extends: .pagecage
  variables:
    PAGECAGE_EXPERIMENT: {quoted}
    PAGECAGE_PROJECT: {project}
{build}    PAGECAGE_SIZE: smoke
    PAGECAGE_REPEATS: "5"
    # The artefacts of the first run have baseline.json. Commit it, and remove the two marks:
    # PAGECAGE_BASELINE: baselines/{name}.json
    # PAGECAGE_FAIL_IF: "device_read_bytes > +5%"
"""
_BUILD_STEP = """\
      - run: {command}
        working-directory: {folder}
"""
_BUILD_VARIABLES = """\
    PAGECAGE_PACKAGES: {packages}
    PAGECAGE_BUILD: {command}
"""
_PIPELINE = """---
include:
  - local: /{job}
"""


@dataclass(frozen=True)
class Build:
    """The command that builds a project's program, in a folder of the project.

    `packages` are those of Debian that it needs, separated by spaces.
    """

    command: str
    folder: str
    packages: str


def ci_files(
    system: CiSystem, name: str, project: str, source: Path, build: Build | None = None
) -> Mapping[str, str]:
    """Return contents by path, relative to the top of the repository.

    `project` is the folder of the experiment below that top. `source` has pagecage's own action and
    template, which are copied so that the repository depends on no other. `build` is None for a
    program that needs none.
    """
    words = {"name": name, "quoted": json.dumps(name), "project": json.dumps(project)}
    words["build"] = _build_of(system, build, project) if build else ""
    if system == "github":
        return {
            _ACTION: (source / "action.yml").read_text(),
            f".github/workflows/pagecage-{name}.yml": _WORKFLOW.format(**words),
        }
    if system == "gitlab":
        job = f".gitlab/pagecage-{name}.yml"
        return {
            _TEMPLATE: (source / "ci/gitlab.yml").read_text(),
            job: _JOB.format(**words, template=_TEMPLATE),
            ".gitlab-ci.yml": _PIPELINE.format(job=job),
        }
    return {}


def _build_of(system: CiSystem, build: Build, project: str) -> str:
    """Return the lines that build the program; a runner of GitHub has the compilers."""
    if system == "github":
        folder = (PurePosixPath(project) / build.folder).as_posix()
        return _BUILD_STEP.format(command=build.command, folder=json.dumps(folder))
    command = f"cd {build.folder} && {build.command}"
    packages = json.dumps(build.packages)
    return _BUILD_VARIABLES.format(command=json.dumps(command), packages=packages)
