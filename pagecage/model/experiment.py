"""An experiment as data: one question, the factors varied to answer it, and the claims it is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pagecage.model.trial import CommandSpec, SetupStep, Workload

SIZES = ("full", "default", "emulated", "smoke")


@dataclass(frozen=True)
class Level:
    """What one level of a factor changes; None changes nothing. `machine_memory_fraction` is of all files together."""

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


@dataclass(frozen=True)
class Size:
    """How large a run is: `files` files of `dataset_bytes` each, how long one measured part may take, which treatments.

    `treatments` is "all" or "covering". `places` are what stands at this size for the definition's own {places}, and
    `writes_bytes` is the room that the workload needs for what it writes itself.
    """

    dataset_bytes: int | None
    max_seconds: float | None
    repeats: int | None = None
    files: int = 1
    treatments: str = "all"
    places: Mapping[str, str] = field(default_factory=dict)
    writes_bytes: int = 0

    def filled(self, text: str) -> str:
        """The text with the definition's own {places} filled in; the others are the agent's."""
        for name, value in self.places.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    @property
    def total_bytes(self) -> int | None:
        """Bytes of all files together."""
        return None if self.dataset_bytes is None else self.dataset_bytes * self.files


@dataclass(frozen=True)
class Experiment:
    """One TOML file of experiments/, checked. `definition_sha256` is the file's own; `definition` its plain content."""

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

    def cage_names(self) -> set[str]:
        """Every cage that a level names, at any size: in its table, or, for the factor `cage`, by its own name."""
        told = {level.cage for levels in self.levels.values() for level in levels.values() if level.cage}
        own = {size.filled(cage) for cage in told for size in self.sizes.values()}
        tables = self.levels.get("cage", {})
        named = {name for name in self.factors.get("cage", ()) if not (name in tables and tables[name].cage)}
        return own | named

    def programs(self) -> set[str]:
        """Every program of workloads/ that a trial may need."""
        tables = [level for levels in self.levels.values() for level in levels.values()]
        base = Workload(self.program, (), self.workload_kind)
        workloads = [base, *(level.workload for level in tables if level.workload)]
        steps = {level.before.program for level in tables if level.before}
        return steps | {workload.program for workload in workloads if workload.kind == "handshake"}
