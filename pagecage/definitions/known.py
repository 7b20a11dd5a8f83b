"""Definitions whose code may run on this machine, and the commands of a definition."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pagecage.checkout import find_project, user_folder
from pagecage.definitions.experiment import Experiment
from pagecage.whole_files import json_sha256, text_sha256

HARMLESS = frozenset(
    {
        *("question", "story", "source", "response", "repeats", "claims", "findings", "tables"),
        *("headline", "ratio_tables", "identical", "exclude", "fresh", "fill"),
    }
)
"""Keys of a definition that name neither a command nor a file."""


def commands_sha256(experiment: Experiment) -> str:
    """Return the hash of all that a definition can make a host run."""
    told = {key: value for key, value in experiment.definition.items() if key not in HARMLESS}
    return json_sha256([told, dict(experiment.own_programs), dict(experiment.sections)])


def is_known(experiment: Experiment) -> bool:
    """Return whether a definition is pagecage's own, the user's own, or was accepted before."""
    if experiment.file is None:
        return True
    project = find_project(experiment.file.resolve().parent)
    if project is not None and _has("projects", text_sha256(str(project.resolve()))):
        return True
    return _has("definitions", commands_sha256(experiment))


def remember_project(folder: Path) -> None:
    """Keep that the definitions of a project are the user's own."""
    _keep("projects", text_sha256(str(folder.resolve())), str(folder.resolve()))


def remember_definition(experiment: Experiment) -> None:
    """Keep that the commands of a definition were accepted."""
    _keep("definitions", commands_sha256(experiment), experiment.name)


def remember_sections(sections: Mapping[str, str]) -> None:
    """Keep that these parts of a report may be executed on this machine."""
    for name, text in sections.items():
        _keep("sections", text_sha256(text), name)


def accepted_sections(texts: Iterable[str]) -> list[str]:
    """Return the hashes of those parts of a report that may be executed."""
    return [key for key in map(text_sha256, texts) if _has("sections", key)]


def _store() -> Path:
    return user_folder("XDG_STATE_HOME", ".local/state") / "known"


def _has(kind: str, key: str) -> bool:
    with suppress(OSError):
        return (_store() / kind / key).is_file()
    return False


def _keep(kind: str, key: str, about: str) -> None:
    """Write one file. Without a writable state folder, the user is asked again the next time."""
    folder = _store() / kind
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / key).write_text(f"{about}\n", errors="surrogateescape")


def command_lines(experiment: Experiment, where: str) -> Iterator[str]:
    """Yield a line per command of a definition, each below a line that says where it runs."""
    parts = {
        f"{where}, in the experiment's cages:": _caged(experiment.definition),
        f"{where}, outside of them:": _outside(experiment),
        "on this machine, whenever the report is made:": [
            f"{name} (a part of the report)" for name in experiment.sections
        ],
    }
    for heading, commands in parts.items():
        if commands:
            yield heading
            yield from (f"  {command}" for command in dict.fromkeys(commands))


def _levels(definition: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    tables = definition.get("levels", {})
    return [(name, level) for levels in tables.values() for name, level in levels.items()]


def _workloads(definition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    others = (level.get("workload") for _, level in _levels(definition))
    return [definition["workload"], *(workload for workload in others if workload)]


def _caged(definition: Mapping[str, Any]) -> list[str]:
    commands = [
        shlex.join([one["program"], *one.get("arguments", [])]) for one in _workloads(definition)
    ]
    for name, level in _levels(definition):
        if level.get("arguments"):
            commands.append(f"... {shlex.join(level['arguments'])} (with {name})")
        if step := level.get("before"):
            commands.append(shlex.join([step["program"], *step.get("arguments", [])]))
    return commands


def _outside(experiment: Experiment) -> list[str]:
    definition = experiment.definition
    commands = [
        f"{shlex.join(one['load'])} (load)" for one in _workloads(definition) if one.get("load")
    ]
    for name, level in _levels(definition):
        if level.get("load_arguments"):
            commands.append(f"... {shlex.join(level['load_arguments'])} (load, with {name})")
    if data := definition.get("data"):
        commands.append(f"{shlex.join(data['prepare'])} (makes the data)")
    for one in experiment.own_collectors:
        kind = "bpftrace script" if one.is_script else "collector"
        commands.append(f"{shlex.join(one.command)} ({kind} {one.name})")
    if experiment.packages:
        names = " ".join(package.debian for package in experiment.packages)
        commands.append(f"packages: {names}")
    return commands
