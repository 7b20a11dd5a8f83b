"""The tables of experiments/*.toml, as pydantic checks them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from pagecage.definitions.cage_file import DatasetFraction
from pagecage.definitions.claim_tables import ClaimTable, FindingTable, ReportTable
from pagecage.definitions.fields import SizeBytes, Source, StrictTable
from pagecage.model.trial import DriverName
from pagecage.verdicts.median_interval import MOST_REPEATS


def _regular_expression(value: object) -> object:
    """A pattern of Python's `re`, as it stands."""
    try:
        re.compile(str(value))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{value!r} is no regular expression: {error}") from None
    return value


Repeats = Annotated[int, Field(gt=0, le=MOST_REPEATS)]
RegularExpression = Annotated[str, BeforeValidator(_regular_expression, json_schema_input_type=str)]
PLACES = ("file", "files", "sidecar", "data_dir", "max_seconds")
CacheState = Literal["cold", "resident", "any"]
Collector = Literal["iostat", "sar", "vmtouch", "bpftrace", "blocklat"]
Storage = Literal["data", "null_blk", "dm_delay", "container_layer"]
# What the agent writes into a job file itself (pagecage/agent/programs/fio.py).
_OURS_IN_A_JOB = (
    "filename", "directory", "readonly", "invalidate", "group_reporting", "name", "new_group", "output", "stonewall",
    "write_bw_log", "write_lat_log", "write_iops_log", "log_avg_msec",
)  # fmt: skip
_READS_ONLY = ("read", "randread")


def wrong_job_option(option: str) -> str | None:
    """Why this cannot be one option of a fio job, or None."""
    name, _, value = option.partition("=")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or "\n" in option:
        return f'{option!r} is no fio job option, as in "rw=randread"'
    if name in _OURS_IN_A_JOB:
        return f"{name} is written into the job file by pagecage itself"
    if name in ("rw", "readwrite") and value not in _READS_ONLY:
        return f"rw={value} would write to the dataset; known: {', '.join(_READS_ONLY)}"
    return None


class WorkloadTable(StrictTable):
    """The program: one of workloads/ (`handshake`), fio with job options as arguments (`fio`), or any command.

    The keys below `min_memory_bytes` are a command's own.
    """

    program: str
    kind: Literal["handshake", "command", "fio"] = "handshake"
    arguments: list[str] = []
    min_memory_bytes: SizeBytes | None = None
    data_paths: list[str] = Field([], description="files and directories whose cache state is set and measured")
    ready_when: RegularExpression | None = Field(None, description="it serves when a line of its output matches")
    ready_port: Annotated[int, Field(gt=0, lt=65536)] | None = Field(
        None, description="it serves when it listens on this TCP port"
    )
    timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _is_command(self) -> WorkloadTable:
        own = ("data_paths", "ready_when", "ready_port", "timeout_seconds")
        if self.kind != "command" and (given := [key for key in own if getattr(self, key)]):
            raise ValueError(f'{given[0]} goes with kind "command", and this is {self.kind!r}')
        if self.ready_when is not None and self.ready_port is not None:
            raise ValueError("ready_when and ready_port are two ends of one time: leave one of them out")
        return self

    @model_validator(mode="after")
    def _speaks_fio(self) -> WorkloadTable:
        if self.kind == "fio" and self.program != "fio":
            raise ValueError('program must be "fio" where kind is "fio"')
        for option in self.arguments if self.kind == "fio" else []:
            if complaint := wrong_job_option(option):
                raise ValueError(f"arguments: {complaint}")
        return self


class SizeTable(StrictTable):
    """How large a run of this size is: `files` files of `dataset` bytes each; `max_seconds` bounds one measured part.

    `treatments` is all, or covering: the fewest that hold every level once (what smoke does unless told otherwise).
    """

    dataset: SizeBytes | None = None
    files: Annotated[int, Field(gt=0, le=4096)] = 1
    max_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    repeats: Repeats | None = None
    treatments: Literal["all", "covering"] | None = None
    places: dict[Annotated[str, Field(pattern=r"^[a-z][a-z_]*$")], int | str] = Field(
        {}, description="what stands at this size for {places} of the definition's own, in arguments and names of cages"
    )
    writes: SizeBytes | None = Field(None, description="room that the workload needs for what it writes itself")

    @model_validator(mode="after")
    def _own_places(self) -> SizeTable:
        if taken := set(self.places) & set(PLACES):
            raise ValueError(f"places.{min(taken)} has the name of a place that the agent fills in")
        return self


class SetupStepTable(StrictTable):
    """A step run to its end before the counters begin, in the trial's own slice or in a sibling with its limits."""

    program: str
    arguments: list[str] = []
    slice: Literal["same", "other"] = "same"


class LevelTable(StrictTable):
    """What one level changes. A `workload` replaces the experiment's; `arguments` of all levels come after it."""

    arguments: list[str] = []
    cache: CacheState | None = None
    read_ahead_kb: Annotated[int, Field(ge=0)] | None = None
    cage: str | None = None
    workload: WorkloadTable | None = None
    before: SetupStepTable | None = None
    storage: Storage | None = Field(None, description="the disk behind the data directory, or one made for the trial")
    storage_latency_us: Annotated[int, Field(gt=0)] | None = None
    machine_memory_bytes: SizeBytes | DatasetFraction | None = Field(
        None, description="how much of the machine's memory is left; the rest is taken away for the trial"
    )
    dirty_bytes: SizeBytes | None = Field(None, description="vm.dirty_bytes for the trial: from here on writers wait")
    dirty_background_bytes: SizeBytes | None = Field(
        None, description="vm.dirty_background_bytes for the trial: from here on the kernel writes back"
    )
    driver: DriverName | None = Field(None, description="what runs the workload in its cage (docs/CONTAINERS.md)")

    @model_validator(mode="after")
    def _latency(self) -> LevelTable:
        is_made = self.storage in ("null_blk", "dm_delay")
        if is_made != (self.storage_latency_us is not None):
            raise ValueError("storage_latency_us goes with storage null_blk or dm_delay, and they with it")
        if self.storage == "dm_delay" and (self.storage_latency_us or 0) % 1000:
            raise ValueError("storage_latency_us: dm-delay counts whole milliseconds")
        return self


class ExperimentFile(StrictTable):
    """One file of experiments/: a question, the factors varied to answer it, the sizes it can be run at, its claims."""

    question: str
    story: str = ""
    source: Source | None = None
    fill: Literal["random", "zero", "index"] = Field("random", description="what pcgen fills the dataset with")
    workload: WorkloadTable
    response: str = "full_pass_seconds"
    repeats: Repeats = 5
    fresh: Literal["never", "run", "block", "trial"] = "never"
    read_ahead_kb: Annotated[int, Field(ge=0)] | None = None
    collectors: list[Collector] = []
    driver: DriverName | None = Field(None, description="what runs the workload in its cage (docs/CONTAINERS.md)")
    factors: dict[str, list[str]]
    levels: dict[str, dict[str, LevelTable]] = {}
    exclude: list[dict[str, str]] = []
    sizes: dict[Literal["full", "default", "emulated", "smoke"], SizeTable]
    claims: list[ClaimTable] = []
    findings: list[FindingTable] = []
    tables: list[ReportTable] = []

    @model_validator(mode="after")
    def _consistent(self) -> ExperimentFile:
        if not self.factors:
            raise ValueError("factors is empty: an experiment varies something")
        for factor, levels in self.factors.items():
            if not levels:
                raise ValueError(f"factors.{factor} has no levels")
            if len(set(levels)) != len(levels):
                raise ValueError(f"factors.{factor} names a level twice")
        for factor, tables in self.levels.items():
            for level in tables:
                if level not in self.factors.get(factor, []):
                    raise ValueError(f"levels.{factor}.{level} is no level of factors.{factor}")
        self._check_treatments()
        self._check_wheres()
        self._check_places()
        if missing := {"full", "default", "emulated", "smoke"} - set(self.sizes):
            raise ValueError(f"sizes.{min(missing)} is missing")
        return self

    def _check_treatments(self) -> None:
        """Exclusions must name what exists, and factors but `cage` a table for each level."""
        for number, out in enumerate(self.exclude):
            if not out or (unknown := _outside(out, self.factors)):
                raise ValueError(f"exclude[{number}]: {unknown if out else 'it names no factor'} is no level here")
        for factor, levels in self.factors.items():
            bare = [level for level in levels if level not in self.levels.get(factor, {})]
            if bare and factor != "cage":
                raise ValueError(f"levels.{factor}.{bare[0]} is missing: a level without a table would change nothing")

    def _check_wheres(self) -> None:
        """What a claim or a finding names must be levels of this experiment."""
        told: list[tuple[str, StrictTable]] = [(f"claims.{claim.id}", claim) for claim in self.claims]
        told += [(f"findings[{number}]", finding) for number, finding in enumerate(self.findings)]
        told += [(f"tables[{number}]", table) for number, table in enumerate(self.tables)]
        for name, table in told:
            for key in ("where", "over", "than", "than_over"):
                where = getattr(table, key, None) or {}
                if unknown := _outside(where, self.factors):
                    raise ValueError(f"{name}.{key}: {unknown} is no level here")

    def _check_places(self) -> None:
        """A {place} in an argument must be one that the agent fills in, and have something to be filled with."""
        tables = [table for levels in self.levels.values() for table in levels.values()]
        for argument in [*self.workload.arguments, *(a for table in tables for a in table.arguments)]:
            self._check_argument(argument, self.workload.kind == "handshake", "workload.arguments")
        for workload in (table.workload for table in tables if table.workload):
            for argument in workload.arguments:
                self._check_argument(argument, workload.kind == "handshake", "levels.*.workload.arguments")
        for cage in (table.cage for table in tables if table.cage):
            self._check_argument(cage, True, "levels.*.cage")
        for argument in (a for table in tables if table.before for a in table.before.arguments):
            self._check_argument(argument, True, "levels.*.before.arguments")

    def _check_argument(self, argument: str, strict: bool, where: str) -> None:
        own = sorted({place for size in self.sizes.values() for place in size.places})
        for place in re.findall(r"\{([a-z_]+)\}", argument):
            if place not in (*PLACES, *own) and strict:
                raise ValueError(f"{where}: no {{{place}}}; known: {', '.join((*PLACES, *own))}")
            if place == "files" and strict and argument != "{files}":
                raise ValueError(f"{where}: {argument!r}: {{files}} becomes several arguments, so it stands alone")
            known = place in (*PLACES, *own)
            bare = [n for n, size in self.sizes.items() if known and not _fills(place, size)]
            if bare:
                raise ValueError(f"sizes.{bare[0]} gives nothing for {{{place}}}")


def _fills(place: str, size: SizeTable) -> bool:
    if place in ("file", "files", "sidecar"):
        return size.dataset is not None
    if place not in PLACES:
        return place in size.places
    return place != "max_seconds" or size.max_seconds is not None


def _outside(where: Mapping[str, str], factors: Mapping[str, list[str]]) -> str | None:
    """What of a partial treatment the factors do not know."""
    for factor, level in where.items():
        if level not in factors.get(factor, []):
            return f"{factor} = {level!r}"
    return None
