"""A runner of `action.yml`: its steps as the runner of GitHub Actions would run them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pagecage.process import Completed, run
from tests.ci.expressions import interpolate, is_true
from tests.ci.one_run import one_run_at_a_time
from tests.tree import ROOT

ACTION = ROOT / "action.yml"
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
"""The command of `shell: bash`."""


def action() -> dict[str, Any]:
    """Return the contents of action.yml."""
    loaded: dict[str, Any] = yaml.safe_load(ACTION.read_text())
    return loaded


@dataclass
class Runner:
    """A runner with a working directory, folders for its own files, and a cache.

    `path` is put before PATH, as a self-hosted runner might have it.
    """

    workspace: Path
    files: Path
    path: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 600.0

    def __post_init__(self) -> None:
        for name in ("temp", "cache", "artifacts"):
            (self.files / name).mkdir(parents=True, exist_ok=True)

    @property
    def artifacts(self) -> Path:
        """One folder per uploaded artefact."""
        return self.files / "artifacts"

    def use(self, **inputs: str) -> Job:
        """Run the action with these inputs (`-` is written `_`) and return what came of it."""
        job = Job(self, {name.replace("_", "-"): value for name, value in inputs.items()})
        with one_run_at_a_time():
            return job.run()


@dataclass
class Job:
    """One use of the action."""

    runner: Runner
    inputs: dict[str, str]
    ran: list[str] = field(default_factory=list)
    logs: dict[str, Completed] = field(default_factory=dict)
    summary: str = ""
    context: dict[str, str] = field(default_factory=dict)
    status: int = 0
    outputs: dict[str, str] = field(default_factory=dict)
    folder: Path = ROOT
    """The folder of the action, where GitHub unpacks its repository."""

    def run(self, only: Sequence[str] = (), **known: str) -> Job:
        """Run the steps up to the first that fails.

        `only` names some of them; `known` are then the outputs of the step `run`.
        """
        described = action()
        self.context = _inputs(described, self.inputs)
        self.context |= {"github.action_path": str(self.folder), "runner.temp": str(self._temp)}
        for step in described["runs"]["steps"]:
            self._declare_outputs(step)
            self.context |= {f"steps.run.outputs.{name}": value for name, value in known.items()}
            if only and step["name"] not in only:
                continue
            if self.status == 0 and is_true(step.get("if", "'' == ''"), self.context):
                self.ran.append(step["name"])
                self.status = self._used(step) if "uses" in step else self._script(step)
        self.outputs = {
            name: interpolate(output["value"], self.context)
            for name, output in described["outputs"].items()
        }
        return self

    @property
    def _temp(self) -> Path:
        return self.runner.files / "temp"

    def _declare_outputs(self, step: Mapping[str, Any]) -> None:
        """A step that does not run, or sets no output, has empty ones."""
        if "id" in step:
            text = ACTION.read_text()
            prefix = f"steps.{step['id']}.outputs."
            names = {word for word in text.replace("}}", " ").split() if word.startswith(prefix)}
            self.context |= dict.fromkeys(names, "")

    def _script(self, step: Mapping[str, Any]) -> int:
        assert step["shell"] == "bash"
        script, told = self._temp / "script.sh", {}
        script.write_text(interpolate(step["run"], self.context))
        for name in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY", "GITHUB_PATH"):
            told[name] = self._temp / name.lower()
            if name != "GITHUB_PATH":
                told[name].write_text("")
            told[name].touch()
        folder = interpolate(step.get("working-directory", "."), self.context)
        done = run(
            [*BASH, script],
            check=False,
            cwd=self.runner.workspace / folder,
            env=self._environment(step, told),
            timeout_seconds=self.runner.timeout_seconds,
        )
        self.logs[step["name"]] = done
        assert told["GITHUB_ENV"].read_text() == "", "no step sets variables of later ones"
        self.summary += told["GITHUB_STEP_SUMMARY"].read_text()
        for line in told["GITHUB_OUTPUT"].read_text().splitlines():
            name, _, value = line.partition("=")
            self.context[f"steps.{step['id']}.outputs.{name}"] = value
        return done.status

    def _environment(self, step: Mapping[str, Any], told: Mapping[str, Path]) -> dict[str, str]:
        added = told["GITHUB_PATH"].read_text().split()
        given = step.get("env", {})
        return {
            **self.runner.variables,
            **{name: interpolate(value, self.context) for name, value in given.items()},
            **{name: str(path) for name, path in told.items()},
            "RUNNER_TEMP": str(self._temp),
            "PATH": ":".join([*reversed(added), str(self.runner.path), os.environ["PATH"]]),
        }

    def _used(self, step: Mapping[str, Any]) -> int:
        """Do what the named action does, with folders of this machine in place of its servers."""
        given = {name: interpolate(value, self.context) for name, value in step["with"].items()}
        assert all(given.values()), f"{step['name']}: an empty input"
        match step["uses"]:
            case "actions/cache/restore@v4":
                kept = self.runner.files / "cache" / given["key"]
                if kept.exists():
                    shutil.copytree(kept, given["path"], dirs_exist_ok=True)
                    self.context[f"steps.{step['id']}.outputs.cache-hit"] = "true"
            case "actions/cache/save@v4":
                shutil.copytree(given["path"], self.runner.files / "cache" / given["key"])
            case "actions/upload-artifact@v4":
                shutil.copytree(given["path"], self.runner.artifacts / given["name"])
            case unknown:
                raise AssertionError(f"the test cannot do {unknown}")
        return 0


def _inputs(described: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    known = described["inputs"]
    assert set(given) <= set(known), f"no such input: {sorted(set(given) - set(known))}"
    missing = [name for name, one in known.items() if one.get("required") and name not in given]
    assert not missing, f"required: {missing}"
    values = {name: given.get(name, one.get("default", "")) for name, one in known.items()}
    return {f"inputs.{name}": value for name, value in values.items()}
