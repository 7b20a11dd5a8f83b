"""Experiments: a question, the factors varied to answer it, and the claims tested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagecage.model.collectors import OwnCollector
from pagecage.model.services import ServiceSpec
from pagecage.model.trial import CommandSpec, Package, SetupStep, TrialData, Workload

SIZES = ("full", "default", "emulated", "smoke")


@dataclass(frozen=True)
class Level:
    """The changes that one level of a factor makes. None means no change.

    `machine_memory_fraction` is of the size of all files; `files` divides it among another number.
    """

    arguments: tuple[str, ...] = ()
    cache: str | None = None
    read_ahead_kb: int | None = None
    cage: str | None = None
    workload: Workload | None = None
    before: SetupStep | None = None
    storage: str | None = None
    storage_latency_us: int | None = None
    machine_memory_bytes: int | None = None
    machine_memory_fraction: float | None = None
    dirty_bytes: int | None = None
    dirty_background_bytes: int | None = None
    driver: str | None = None
    enforced_by: str | None = None
    files: int | None = None
    load_arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Size:
    """Size of a run: `files` files of `dataset_bytes` each, and `max_seconds` per measured part.

    `treatments` is "all" or "covering". `places` are the values of the definition's own
    {placeholders} at this size. `writes_bytes` is the disk space that the workload needs for its
    own files, `prepared_bytes` the size of its prepared data.
    """

    dataset_bytes: int | None
    max_seconds: float | None
    repeats: int | None = None
    files: int = 1
    treatments: str = "all"
    places: Mapping[str, str] = field(default_factory=dict)
    writes_bytes: int = 0
    prepared_bytes: int = 0

    def filled(self, text: str) -> str:
        """Return the text with the definition's own {placeholders} filled in."""
        for name, value in self.places.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    @property
    def total_bytes(self) -> int | None:
        """The size of all files together, in bytes."""
        return None if self.dataset_bytes is None else self.dataset_bytes * self.files


@dataclass(frozen=True)
class Experiment:
    """One checked TOML file of experiments/.

    `definition` is the file's content as plain data, and `definition_sha256` the hash of the file
    and of its own programs. `own_programs` are their texts by name.
    `project` is the top of the user's project with the file; None for an experiment of pagecage.
    `copies` are files of the project that the guest gets. `sections` are the texts of its own
    parts of the report, by file name. `file` is the definition's; None for one of pagecage.
    """

    name: str
    question: str
    program: str
    workload_kind: str
    arguments: tuple[str, ...]
    min_memory_bytes: int
    response: str
    repeats: int
    fresh: str
    read_ahead_kb: int | None
    collectors: tuple[str, ...]
    factors: Mapping[str, tuple[str, ...]]
    levels: Mapping[str, Mapping[str, Level]]
    exclude: tuple[Mapping[str, str], ...]
    sizes: Mapping[str, Size]
    claims: tuple[Mapping[str, Any], ...]
    definition_sha256: str
    definition: Mapping[str, Any] = field(default_factory=dict)
    fill: str = "random"
    command: CommandSpec | None = None
    driver: str | None = None
    conditions: tuple[str, ...] = ()
    packages: tuple[Package, ...] = ()
    project: Path | None = None
    copies: tuple[str, ...] = ()
    own_programs: Mapping[str, str] = field(default_factory=dict)
    data: TrialData | None = None
    service: ServiceSpec | None = None
    own_collectors: tuple[OwnCollector, ...] = ()
    sections: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None

    def cage_names(self) -> set[str]:
        """Return the cages of all levels at any size: in a table, or as a level of `cage`."""
        in_tables = {
            level.cage for levels in self.levels.values() for level in levels.values() if level.cage
        }
        own = {size.filled(cage) for cage in in_tables for size in self.sizes.values()}
        tables = self.levels.get("cage", {})
        named = {
            name
            for name in self.factors.get("cage", ())
            if not (name in tables and tables[name].cage)
        }
        return own | named

    def programs(self) -> set[str]:
        """Return the programs of workloads/ that a trial may need."""
        tables = [level for levels in self.levels.values() for level in levels.values()]
        base = Workload(self.program, (), self.workload_kind)
        workloads = [base, *(level.workload for level in tables if level.workload)]
        steps = {level.before.program for level in tables if level.before}
        return steps | {workload.program for workload in workloads if workload.is_built_in}
