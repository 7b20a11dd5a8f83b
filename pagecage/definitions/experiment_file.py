"""The tables of experiments/*.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from pagecage.definitions.cage_file import DatasetFraction
from pagecage.definitions.claim_tables import ClaimTable, FindingTable, ReportTable
from pagecage.definitions.fields import Citation, SizeBytes, StrictTable
from pagecage.model.trial import DriverName
from pagecage.verdicts.median_interval import MOST_REPEATS


def _regular_expression(value: object) -> object:
    """Return the pattern unchanged. Raises ValueError if Python's `re` rejects it."""
    try:
        re.compile(str(value))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{value!r} is not a regular expression: {error}") from None
    return value


Repeats = Annotated[int, Field(gt=0, le=MOST_REPEATS)]
RegularExpression = Annotated[str, BeforeValidator(_regular_expression, json_schema_input_type=str)]
PLACEHOLDERS = ("file", "files", "sidecar", "data_dir", "max_seconds")
CacheState = Literal["cold", "resident", "any"]
Collector = Literal["iostat", "sar", "vmtouch", "bpftrace", "blocklat", "perf-mem"]
Storage = Literal["data", "null_blk", "dm_delay", "container_layer"]
# Options that the agent writes into every job file (pagecage/agent/programs/fio.py).
_AGENT_JOB_OPTIONS = (
    "filename",
    "directory",
    "readonly",
    "invalidate",
    "group_reporting",
    "name",
    "new_group",
    "output",
    "stonewall",
    "write_bw_log",
    "write_lat_log",
    "write_iops_log",
    "log_avg_msec",
)
_READS_ONLY = ("read", "randread")


def wrong_job_option(option: str) -> str | None:
    """Return the reason why this is not an acceptable option of a fio job; None if it is."""
    name, _, value = option.partition("=")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or "\n" in option:
        return f'{option!r} is not a fio job option, as "rw=randread" is'
    if name in _AGENT_JOB_OPTIONS:
        return f"{name} is an option that pagecage writes into the job file itself"
    if name in ("rw", "readwrite") and value not in _READS_ONLY:
        return f"rw={value} would write to the dataset; allowed: {', '.join(_READS_ONLY)}"
    return None


class WorkloadTable(StrictTable):
    """The program that a trial measures, of one of three kinds.

    `handshake` is a program of workloads/. `fio` is fio with job options as arguments. `command` is
    any program; the keys after `min_memory_bytes` apply only to it.
    """

    program: str
    kind: Literal["handshake", "command", "fio"] = "handshake"
    arguments: list[str] = []
    min_memory_bytes: SizeBytes | None = None
    data_paths: list[str] = Field(
        [], description="files and directories whose cache state is set and checked"
    )
    ready_when: RegularExpression | None = Field(
        None, description="the measured part ends when a line of output matches"
    )
    ready_port: Annotated[int, Field(gt=0, lt=65536)] | None = Field(
        None, description="the measured part ends when the program listens on this TCP port"
    )
    timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _is_command(self) -> WorkloadTable:
        own = ("data_paths", "ready_when", "ready_port", "timeout_seconds")
        if self.kind != "command" and (given := [key for key in own if getattr(self, key)]):
            raise ValueError(f'{given[0]} applies only to kind "command", not to {self.kind!r}')
        if self.ready_when is not None and self.ready_port is not None:
            raise ValueError(
                "ready_when and ready_port both end the measured part; remove one of them"
            )
        return self

    @model_validator(mode="after")
    def _is_fio(self) -> WorkloadTable:
        if self.kind == "fio" and self.program != "fio":
            raise ValueError('program must be "fio" if kind is "fio"')
        for option in self.arguments if self.kind == "fio" else []:
            if reason := wrong_job_option(option):
                raise ValueError(f"arguments: {reason}")
        return self


class SizeTable(StrictTable):
    """The data and duration of a run of one size.

    The dataset has `files` files of `dataset` bytes each. `max_seconds` limits one measured part.
    `treatments` is `all`, or `covering` for few treatments that contain every level. The default is
    `covering` for the size smoke, and `all` for the others.
    """

    dataset: SizeBytes | None = None
    files: Annotated[int, Field(gt=0, le=4096)] = 1
    max_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    repeats: Repeats | None = None
    treatments: Literal["all", "covering"] | None = None
    places: dict[Annotated[str, Field(pattern=r"^[a-z][a-z_]*$")], int | str] = Field(
        {},
        description=(
            "values of the definition's own {placeholders}, in arguments and names of cages, at"
            " this size"
        ),
    )
    writes: SizeBytes | None = Field(
        None, description="space that the workload needs for its own writes"
    )

    @model_validator(mode="after")
    def _check_placeholders(self) -> SizeTable:
        if taken := set(self.places) & set(PLACEHOLDERS):
            raise ValueError(
                f"places.{min(taken)} has the name of a placeholder that the agent fills in"
            )
        return self


class SetupStepTable(StrictTable):
    """A program that runs to its end before the counters start.

    It runs in the trial's slice (`same`), or in a sibling slice with the same limits (`other`).
    """

    program: str
    arguments: list[str] = []
    slice: Literal["same", "other"] = "same"


class LevelTable(StrictTable):
    """The changes that one level makes to a trial.

    A `workload` replaces the experiment's. The `arguments` of all levels follow those of the
    workload.
    """

    arguments: list[str] = []
    cache: CacheState | None = None
    read_ahead_kb: Annotated[int, Field(ge=0)] | None = None
    cage: str | None = None
    workload: WorkloadTable | None = None
    before: SetupStepTable | None = None
    storage: Storage | None = Field(
        None,
        description="`data` is the disk of the data directory; the others are made for the trial",
    )
    storage_latency_us: Annotated[int, Field(gt=0)] | None = None
    machine_memory_bytes: SizeBytes | DatasetFraction | None = Field(
        None, description="memory that the machine keeps for the trial; pagecage reserves the rest"
    )
    dirty_bytes: SizeBytes | None = Field(
        None, description="vm.dirty_bytes for the trial: from this amount on, writers wait"
    )
    dirty_background_bytes: SizeBytes | None = Field(
        None,
        description=(
            "vm.dirty_background_bytes for the trial: from this amount on, the kernel writes back"
        ),
    )
    driver: DriverName | None = Field(
        None, description="the driver that runs the workload in its cage (docs/CONTAINERS.md)"
    )

    @model_validator(mode="after")
    def _latency(self) -> LevelTable:
        is_made = self.storage in ("null_blk", "dm_delay")
        if is_made != (self.storage_latency_us is not None):
            raise ValueError(
                "storage null_blk or dm_delay needs storage_latency_us, and no other storage has it"
            )
        if self.storage == "dm_delay" and (self.storage_latency_us or 0) % 1000:
            raise ValueError("storage_latency_us: dm-delay supports only whole milliseconds")
        return self


class ExperimentFile(StrictTable):
    """One file of experiments/: a question, the varied factors, the sizes and the claims."""

    question: str
    story: str = ""
    source: Citation | None = None
    fill: Literal["random", "zero", "index"] = Field(
        "random", description="content of the dataset, made by pcgen"
    )
    workload: WorkloadTable
    response: str = "full_pass_seconds"
    repeats: Repeats = 5
    fresh: Literal["never", "run", "block", "trial"] = "never"
    read_ahead_kb: Annotated[int, Field(ge=0)] | None = None
    collectors: list[Collector] = []
    driver: DriverName | None = Field(
        None, description="the driver that runs the workload in its cage (docs/CONTAINERS.md)"
    )
    factors: dict[str, list[str]]
    levels: dict[str, dict[str, LevelTable]] = {}
    exclude: list[dict[str, str]] = []
    identical: list[dict[str, list[str]]] = Field(
        [],
        description="levels of a factor that do the same: their treatments are A/A pairs, whose"
        " difference is noise",
    )
    sizes: dict[Literal["full", "default", "emulated", "smoke"], SizeTable]
    claims: list[ClaimTable] = []
    findings: list[FindingTable] = []
    tables: list[ReportTable] = []

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
                if level not in self.factors.get(factor, []):
                    raise ValueError(f"levels.{factor}.{level} is not a level of factors.{factor}")
        self._check_treatments()
        self._check_selections()
        self._check_identical()
        self._check_all_placeholders()
        if missing := {"full", "default", "emulated", "smoke"} - set(self.sizes):
            raise ValueError(f"sizes.{min(missing)} is missing")
        return self

    def _check_treatments(self) -> None:
        """Check that exclusions name existing levels, and that each level has a table.

        Levels of the factor `cage` may lack one, because their names are the names of cages.
        """
        for number, excluded in enumerate(self.exclude):
            if not excluded:
                raise ValueError(f"exclude[{number}] does not name a factor")
            if unknown := _unknown_level(excluded, self.factors):
                raise ValueError(f"exclude[{number}]: {unknown} is not a level of this experiment")
        for factor, levels in self.factors.items():
            without_table = [level for level in levels if level not in self.levels.get(factor, {})]
            if without_table and factor != "cage":
                key = f"levels.{factor}.{without_table[0]}"
                raise ValueError(f"{key} is missing: a level without a table would change nothing")

    def _check_selections(self) -> None:
        """Check that claims, findings and tables select existing levels."""
        tables: list[tuple[str, StrictTable]] = [
            (f"claims.{claim.id}", claim) for claim in self.claims
        ]
        tables += [(f"findings[{number}]", finding) for number, finding in enumerate(self.findings)]
        tables += [(f"tables[{number}]", table) for number, table in enumerate(self.tables)]
        for name, table in tables:
            for key in ("where", "over", "than", "than_over"):
                where = getattr(table, key, None) or {}
                if unknown := _unknown_level(where, self.factors):
                    raise ValueError(f"{name}.{key}: {unknown} is not a level of this experiment")
        for claim in self.claims:
            if claim.along is not None and claim.along not in self.factors:
                raise ValueError(f"claims.{claim.id}.along: there is no factor {claim.along!r}")
        ids = {claim.id for claim in self.claims}
        for number, finding in enumerate(self.findings):
            if finding.claim and finding.claim not in ids:
                raise ValueError(f"findings[{number}].claim: there is no claim {finding.claim!r}")

    def _check_identical(self) -> None:
        """Check that each table of identical levels names one factor and two of its levels."""
        for number, table in enumerate(self.identical):
            if len(table) != 1 or any(len(set(levels)) < 2 for levels in table.values()):
                raise ValueError(f"identical[{number}] needs one factor, and at least two levels")
            for factor, levels in table.items():
                for level in levels:
                    if unknown := _unknown_level({factor: level}, self.factors):
                        raise ValueError(
                            f"identical[{number}]: {unknown} is not a level of this experiment"
                        )

    def _check_all_placeholders(self) -> None:
        """Check that every {placeholder} is known and that every size has a value for it."""
        tables = [table for levels in self.levels.values() for table in levels.values()]
        for argument in [
            *self.workload.arguments,
            *(a for table in tables for a in table.arguments),
        ]:
            self._check_argument(argument, self.workload.kind == "handshake", "workload.arguments")
        for workload in (table.workload for table in tables if table.workload):
            for argument in workload.arguments:
                self._check_argument(
                    argument, workload.kind == "handshake", "levels.*.workload.arguments"
                )
        for cage in (table.cage for table in tables if table.cage):
            self._check_argument(cage, True, "levels.*.cage")
        for argument in (a for table in tables if table.before for a in table.before.arguments):
            self._check_argument(argument, True, "levels.*.before.arguments")

    def _check_argument(self, argument: str, is_strict: bool, where: str) -> None:
        """Raise ValueError for a wrong placeholder; other braces are allowed unless `is_strict`."""
        own = sorted({name for size in self.sizes.values() for name in size.places})
        known = (*PLACEHOLDERS, *own)
        for name in re.findall(r"\{([a-z_]+)\}", argument):
            if name not in known and is_strict:
                raise ValueError(
                    f"{where}: there is no placeholder {{{name}}}; known: {', '.join(known)}"
                )
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


def _has_value(placeholder: str, size: SizeTable) -> bool:
    if placeholder in ("file", "files", "sidecar"):
        return size.dataset is not None
    if placeholder not in PLACEHOLDERS:
        return placeholder in size.places
    return placeholder != "max_seconds" or size.max_seconds is not None


def _unknown_level(where: Mapping[str, str], factors: Mapping[str, list[str]]) -> str | None:
    """Return the first pair of a partial treatment that the factors do not have."""
    for factor, level in where.items():
        if level not in factors.get(factor, []):
            return f"{factor} = {level!r}"
    return None
