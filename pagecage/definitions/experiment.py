"""Experiments: a question, the factors varied to answer it, and the claims tested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pagecage.definitions.fields import Tables
from pagecage.definitions.trial_tables import LevelTable, SizeTable
from pagecage.model.collectors import OwnCollector
from pagecage.model.trial import Package, TrialData, Workload

SIZES = ("full", "default", "emulated", "smoke")


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
    workload: Workload
    response: str
    repeats: int
    fresh: str
    read_ahead_kb: int | None
    collectors: tuple[str, ...]
    factors: Mapping[str, tuple[str, ...]]
    levels: Mapping[str, Mapping[str, LevelTable]]
    exclude: tuple[Mapping[str, str], ...]
    sizes: Mapping[str, SizeTable]
    claims: tuple[Tables, ...]
    definition_sha256: str
    definition: Tables = field(default_factory=dict)
    fill: str = "random"
    driver: str | None = None
    conditions: tuple[str, ...] = ()
    packages: tuple[Package, ...] = ()
    project: Path | None = None
    copies: tuple[str, ...] = ()
    own_programs: Mapping[str, str] = field(default_factory=dict)
    data: TrialData | None = None
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
        workloads = [self.workload, *(level.workload for level in tables if level.workload)]
        steps = {level.before.program for level in tables if level.before}
        return steps | {workload.program for workload in workloads if workload.is_built_in}
