"""Programs that this machine lacks for the trials of a plan."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.programs.fio import missing_engine
from pagecage.checkout import IS_INSTALLED, TOP
from pagecage.model.trial import Trial
from pagecage.process import find_tool

_PACKAGES = {"docker": "docker.io"}
"""Debian's packages whose name differs from the program's."""


@dataclass(frozen=True)
class MissingProgram:
    """A program that trials need and this machine lacks, with the fix and the trials."""

    reason: str
    hint: str
    trials: tuple[Trial, ...]


def missing_programs(trials: Sequence[Trial]) -> list[MissingProgram]:
    """Return the programs that trials lack on this machine; a trial is named with the first.

    A program whose name is known only on the host, as one of {programs}, is not looked for.
    """
    found: dict[tuple[str, str], list[Trial]] = {}
    checked: dict[str, tuple[str, str] | None] = {}
    for trial in trials:
        key = f"{trial.driver} {trial.workload}"
        if key not in checked:
            checked[key] = next(_lacking(trial), None)
        if lacking := checked[key]:
            found.setdefault(lacking, []).append(trial)
    return [MissingProgram(*lacking, tuple(of)) for lacking, of in found.items()]


def _lacking(trial: Trial) -> Iterator[tuple[str, str]]:
    """Yield each reason for which a trial cannot start, with its fix."""
    engine, workload = trial.driver.partition("-")[0], trial.workload
    if engine in ("docker", "podman") and not find_tool(engine):
        yield f"{engine} is not installed", f"apt install {_PACKAGES.get(engine, engine)}"
    if workload.kind == "fio" and (reason := missing_engine(workload.arguments)):
        listed = "install a fio that has it: `fio --enghelp` lists the engines"
        yield reason, listed if find_tool("fio") else _fio_hint(trial.experiment)
    if workload.command is not None and workload.command.image is None:
        programs = [workload.program, *(workload.service.load[:1] if workload.service else ())]
        for program in programs:
            path = Path(workload.command.directory or "", program)
            if "{" not in program and not shutil.which(path if "/" in program else program):
                hint = "look whether its name is right and PATH has it"
                yield f"there is no program {program!r} on this machine", hint


def _fio_hint(experiment: str) -> str:
    if IS_INSTALLED or not (TOP / f"experiments/{experiment}.toml").exists():
        return "apt install fio"
    return f"make setup NAME={experiment} HOST=local"
