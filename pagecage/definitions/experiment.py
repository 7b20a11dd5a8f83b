"""Experiments: their files, experiments/*.toml, with the checks across tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pagecage.definitions.claim_tables import ClaimTable, FindingTable, RatioTable, ReportTable
from pagecage.definitions.custom_tables import BpftraceTable, Collectors, check_collectors
from pagecage.definitions.fields import CheckedBy, Citation, StrictTable, Tables, Words
from pagecage.definitions.trial_tables import (
    PLACEHOLDERS,
    DataTable,
    LevelTable,
    Packages,
    Repeats,
    SizeTable,
    WorkloadTable,
    wrong_response,
)
from pagecage.model.collectors import OwnCollector
from pagecage.model.trial import (
    FRESH_HOME,
    SAME_OUTPUT,
    Condition,
    DriverName,
    Package,
    TrialData,
    Workload,
)
from pagecage.units import LEAST_PAGE_BYTES


class ExperimentFile(StrictTable):
    """One file of experiments/: a question, the varied factors, the sizes and the claims."""

    question: str
    story: str = ""
    source: Citation | None = None
    fill: Literal["random", "zero", "index"] = Field(
        "random", description="content of the dataset, made by pcgen"
    )
    packages: Packages = Field(
        (),
        description="packages of the distribution that the programs need: Debian's names, or a"
        " table where other distributions have other names",
    )
    workload: Annotated[Workload, CheckedBy(WorkloadTable)]
    data: Annotated[TrialData, CheckedBy(DataTable)] | None = None
    response: str = "full_pass_seconds"
    repeats: Repeats = 5
    fresh: Literal["never", "run", "block", "trial"] = "never"
    read_ahead_kb: Annotated[int, Field(ge=0)] | None = None
    collectors: Collectors = Field(
        [], description="recorders that run beside each trial (docs/PROJECT.md)"
    )
    bpftrace: BpftraceTable | None = None
    sections: list[str] = Field(
        [],
        description="parts of the report: files beside this one in jupytext's percent format",
    )
    conditions: Annotated[tuple[Condition, ...], CheckedBy(list[Condition], tuple)] = Field(
        (),
        description="conditions of each trial besides its cache: cold-metadata drops directory"
        " entries and inodes, fresh-home gives a command an empty home, same-output excludes"
        " commands whose standard output differs from that of the other repeats",
    )
    driver: DriverName | None = Field(
        None, description="the driver that runs the workload in its cage (docs/CONTAINERS.md)"
    )
    copies: Words = Field(
        (),
        description="files of the project that are copied to the guest (docs/PROJECT.md)",
    )
    factors: dict[str, Words]
    levels: dict[str, dict[str, LevelTable]] = {}
    exclude: Annotated[tuple[dict[str, str], ...], CheckedBy(list[dict[str, str]], tuple)] = ()
    identical: list[dict[str, list[str]]] = Field(
        [],
        description="levels of a factor that do the same: their treatments are A/A pairs, whose"
        " difference is noise",
    )
    sizes: dict[Literal["full", "default", "emulated", "smoke"], SizeTable]
    claims: list[ClaimTable] = []
    headline: list[FindingTable] = Field(
        [], description="the result in one line: the parts of the report's first sentence"
    )
    findings: list[FindingTable] = []
    tables: list[ReportTable] = []
    ratio_tables: list[RatioTable] = []

    @model_validator(mode="after")
    def _consistent(self) -> ExperimentFile:
        if not self.factors:
            raise ValueError("factors is empty; an experiment needs at least one")
        for factor, levels in self.factors.items():
            if not levels:
                raise ValueError(f"factors.{factor} has no levels")
            if len(set(levels)) != len(levels):
                raise ValueError(f"factors.{factor} names a level twice")
        for factor, tables in self.levels.items():
            for level in tables:
                if level not in self.factors.get(factor, ()):
                    raise ValueError(f"levels.{factor}.{level} is not a level of factors.{factor}")
        self._check_treatments()
        self._check_selections()
        self._check_ratio_tables()
        self._check_identical()
        self._check_workloads()
        service = self.workload.service
        check_collectors(self.collectors, self.bpftrace, service.metrics if service else {})
        self._check_all_placeholders()
        self._check_files()
        self._check_data()
        if missing := {"full", "default", "emulated", "smoke"} - set(self.sizes):
            raise ValueError(f"sizes.{min(missing)} is missing")
        return self

    def _check_treatments(self) -> None:
        for number, excluded in enumerate(self.exclude):
            if not excluded:
                raise ValueError(f"exclude[{number}] does not name a factor")
            if unknown := _unknown_level(excluded, self.factors):
                raise ValueError(f"exclude[{number}]: {unknown} is not a level of this experiment")
        for factor, levels in self.factors.items():
            without_table = [level for level in levels if level not in self.levels.get(factor, {})]
            if without_table and factor != "cage":  # whose levels may be names of cages
                key = f"levels.{factor}.{without_table[0]}"
                raise ValueError(f"{key} is missing: a level without a table would change nothing")

    def _check_selections(self) -> None:
        tables: list[tuple[str, StrictTable]] = [
            (f"claims.{claim.id}", claim) for claim in self.claims
        ]
        for key in ("headline", "findings", "tables", "ratio_tables"):
            tables += [(f"{key}[{n}]", table) for n, table in enumerate(getattr(self, key))]
        for name, table in tables:
            keys = ("where", "of", "over", "than", "than_over")
            sides = [(key, getattr(table, key, None) or {}) for key in keys]
            sides += [("also", levels) for levels in getattr(table, "also", ())]
            for key, where in sides:
                if unknown := _unknown_level(where, self.factors):
                    raise ValueError(f"{name}.{key}: {unknown} is not a level of this experiment")
        for claim in self.claims:
            if claim.along is not None and claim.along not in self.factors:
                raise ValueError(f"claims.{claim.id}.along: there is no factor {claim.along!r}")
        ids = {claim.id for claim in self.claims}
        for number, finding in enumerate(self.findings):
            if finding.claim and finding.claim not in ids:
                raise ValueError(f"findings[{number}].claim: there is no claim {finding.claim!r}")

    def _check_ratio_tables(self) -> None:
        for number, table in enumerate(self.ratio_tables):
            for key, factor in (("rows", table.rows), ("columns", table.columns)):
                if factor not in self.factors:
                    raise ValueError(f"ratio_tables[{number}].{key}: there is no factor {factor!r}")

    def _check_identical(self) -> None:
        for number, table in enumerate(self.identical):
            if len(table) != 1 or any(len(set(levels)) < 2 for levels in table.values()):
                raise ValueError(f"identical[{number}] needs one factor, and at least two levels")
            for factor, levels in table.items():
                for level in levels:
                    if unknown := _unknown_level({factor: level}, self.factors):
                        reason = f"identical[{number}]: {unknown} is not a level of this experiment"
                        raise ValueError(reason)

    @property
    def _level_tables(self) -> list[LevelTable]:
        return [table for levels in self.levels.values() for table in levels.values()]

    @property
    def _workloads(self) -> list[Workload]:
        """The experiment's workload, and those of levels."""
        return [self.workload, *(one.workload for one in self._level_tables if one.workload)]

    def _check_workloads(self) -> None:
        if any(table.load_arguments for table in self._level_tables) and any(
            workload.kind != "service" for workload in self._workloads
        ):
            raise ValueError('levels: load_arguments apply only to workloads of kind "service"')
        service = self.workload.service
        if service and (reason := wrong_response(self.response, service)):
            raise ValueError(reason)
        kinds = {FRESH_HOME: ("command", "service"), SAME_OUTPUT: ("command",)}
        for condition in self.conditions:
            if self.workload.kind not in kinds.get(condition, (self.workload.kind,)):
                raise ValueError(
                    f"conditions: {condition} applies only to workloads of kind"
                    f" {' or '.join(kinds[condition])}"
                )

    def _check_files(self) -> None:
        for factor, levels in self.levels.items():
            for name, level in levels.items():
                for size_name, size in self.sizes.items():
                    total = (size.dataset or 0) * size.files
                    if level.files and (not total or total % (level.files * LEAST_PAGE_BYTES)):
                        raise ValueError(
                            f"levels.{factor}.{name}.files: the data of sizes.{size_name} cannot be"
                            f" divided among {level.files} files of whole pages"
                        )

    def _check_data(self) -> None:
        if self.data is not None and any(one.kind == "fio" for one in self._workloads):
            raise ValueError('data: a workload of kind "fio" cannot use prepared data')
        words = [word for table in self._level_tables for word in table.arguments]
        for one in self._workloads:
            paths = one.command.data_paths if one.command else ()
            words += [one.program, *one.arguments, *paths, *_load(one)]
        if self.data is None and any("{data}" in word for word in words):
            raise ValueError("{data} is used, but there is no table [data]")
        for word in self.data.prepare if self.data else ():
            self._check_argument(word, False, "data.prepare")

    def _check_all_placeholders(self) -> None:
        tables, is_strict = self._level_tables, self.workload.kind == "handshake"
        for argument in [
            *self.workload.arguments,
            *_load(self.workload),
            *(a for table in tables for a in (*table.arguments, *table.load_arguments)),
        ]:
            self._check_argument(argument, is_strict, "workload.arguments")
        for workload in self._workloads[1:]:
            is_strict = workload.kind == "handshake"
            for argument in (*workload.arguments, *_load(workload)):
                self._check_argument(argument, is_strict, "levels.*.workload.arguments")
        for table in tables:
            if table.cage:
                self._check_argument(table.cage, True, "levels.*.cage")
        for argument in (a for table in tables if table.before for a in table.before.arguments):
            self._check_argument(argument, True, "levels.*.before.arguments")

    def _check_argument(self, argument: str, is_strict: bool, where: str) -> None:
        """Raise ValueError for a wrong placeholder; other braces are allowed unless `is_strict`."""
        own = sorted({name for size in self.sizes.values() for name in size.places})
        known = (*PLACEHOLDERS, *own, *(["data"] if self.data else []))
        for name in re.findall(r"\{([a-z_]+)\}", argument):
            # Only a workload's command is filled in with the folder of the definition's programs.
            is_filled = name == "programs" and where.endswith("workload.arguments")
            if name not in known and not is_filled and is_strict:
                reason = f"{where}: there is no placeholder {{{name}}}; known: {', '.join(known)}"
                raise ValueError(reason)
            if name == "files" and is_strict and argument != "{files}":
                raise ValueError(
                    f"{where}: {argument!r}: {{files}} becomes several arguments and must stand"
                    " alone"
                )
            lacking = [
                n for n, size in self.sizes.items() if name in known and not _has_value(name, size)
            ]
            if lacking:
                raise ValueError(f"sizes.{lacking[0]} has no value for {{{name}}}")


def _load(workload: Workload) -> tuple[str, ...]:
    return workload.service.load if workload.service else ()


def _has_value(placeholder: str, size: SizeTable) -> bool:
    if placeholder in ("file", "files", "sidecar"):
        return size.dataset is not None
    if placeholder == "data":
        return True
    if placeholder not in PLACEHOLDERS:
        return placeholder in size.places
    return placeholder != "max_seconds" or size.max_seconds is not None


def _unknown_level(where: Mapping[str, str], factors: Mapping[str, Sequence[str]]) -> str | None:
    for factor, level in where.items():
        if level not in factors.get(factor, ()):
            return f"{factor} = {level!r}"
    return None


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
