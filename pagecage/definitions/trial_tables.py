"""Tables of a definition that describe trials: treatments, datasets, services."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pagecage.definitions.cage_file import DatasetFraction
from pagecage.definitions.fields import CheckedBy, SizeBytes, StrictTable, Words
from pagecage.model.cage import Enforcer
from pagecage.model.services import NAME, OWN_RESPONSES, MetricPattern, ServiceSpec, wrong_pattern
from pagecage.model.trial import CommandSpec, DriverName, Package, SetupStep, Storage, Workload
from pagecage.verdicts.repeats import MOST_REPEATS


def _checked_pattern(pattern: str) -> str:
    if reason := wrong_pattern(pattern):
        raise ValueError(reason)
    return pattern


def wrong_metric_name(name: str) -> str | None:
    """Return the reason why a metric cannot have this name; None if it can."""
    if not NAME.fullmatch(name):
        return f"{name!r} is not the name of a metric: small letters, digits and _, as in p99_ms"
    from pagecage.agent.responses import STANDARD_RESPONSES  # late: it loads most of the agent

    if name in STANDARD_RESPONSES or name in OWN_RESPONSES:
        return f"{name} is a response of every trial, so that no metric can have its name"
    return None


def _checked_names(metrics: dict[str, object]) -> dict[str, object]:
    for name in metrics:
        if reason := wrong_metric_name(name):
            raise ValueError(reason)
    return metrics


Pattern = Annotated[str, AfterValidator(_checked_pattern)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class MetricTable(StrictTable):
    """A figure in the load's standard output."""

    pattern: Pattern
    higher_is_better: bool | None = None


_Metric = Annotated[
    MetricPattern,
    CheckedBy(
        Pattern | MetricTable,
        lambda one: MetricPattern(*([one] if isinstance(one, str) else dict(one).values())),
    ),
]


class ServiceKeys(StrictTable):
    """The keys of a workload that only a `service` has."""

    load: Words = Field((), description="command that drives the server, from outside its cage")
    metrics: Annotated[dict[str, _Metric], AfterValidator(_checked_names)] = Field(
        default={},
        description=(
            "figures in the load's standard output, by name: a regular expression with one group,"
            " or a JSON path that begins with $"
        ),
    )
    warm_up_seconds: Seconds = Field(
        0.0, description="the load runs for this time before it counts"
    )
    settle_seconds: Seconds = Field(
        0.0, description="pause between the warm-up and the measured load"
    )
    ready_timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="the server must serve within this time"
    )
    stop_signal: Literal["TERM", "INT", "QUIT", "HUP", "KILL"] = Field(
        "TERM", description="signal that ends the server"
    )

    def service(self) -> ServiceSpec:
        return ServiceSpec(**{key: getattr(self, key) for key in ServiceKeys.model_fields})


def wrong_response(response: str, service: ServiceSpec) -> str | None:
    """Return the reason why a service has no such response; None if it has."""
    from pagecage.agent.responses import STANDARD_RESPONSES  # late: it loads most of the agent

    if response in {*service.metrics, *OWN_RESPONSES, *STANDARD_RESPONSES}:
        return None
    known = ", ".join((*service.metrics, *OWN_RESPONSES))
    return f"response: the service has no metric {response!r}; known: {known}"


def _regular_expression(value: object) -> object:
    try:
        re.compile(str(value))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{value!r} is not a regular expression: {error}") from None
    return value


Repeats = Annotated[int, Field(gt=0, le=MOST_REPEATS)]
RegularExpression = Annotated[str, BeforeValidator(_regular_expression, json_schema_input_type=str)]
DebianName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]+$")]
PLACEHOLDERS = ("file", "files", "sidecar", "data_dir", "max_seconds")
OF_COMMANDS = ("programs", "data")
"""Placeholders in the words of commands alone, not in those of other workloads."""
CacheState = Literal["cold", "resident", "any"]
# Options that the agent writes into every job file (pagecage/agent/programs/fio.py).
_AGENT_JOB_OPTIONS = (
    *("filename", "directory", "readonly", "invalidate", "group_reporting", "name", "new_group"),
    *("output", "stonewall", "write_bw_log", "write_lat_log", "write_iops_log", "log_avg_msec"),
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


class WorkloadTable(ServiceKeys):
    """The program that a trial measures, of one of four kinds.

    `handshake` is a program that speaks the handshake (docs/HANDSHAKE.md): the name of one of
    pagecage's workloads, or with a slash the path of one in the project. `fio` is fio with job
    options as arguments. `command` is any program, and `service` a server whose load is measured.
    The keys from `data_paths` on apply to these two, and those of the load to a service.
    """

    program: str
    kind: Literal["handshake", "command", "service", "fio"] = "handshake"
    arguments: Words = ()
    min_memory_bytes: SizeBytes | None = None
    data_paths: Words = Field(
        (), description="files and directories whose cache state is set and checked"
    )
    ready_when: RegularExpression | None = Field(
        default=None, description="the measured part ends when a line of output matches"
    )
    ready_port: Annotated[int, Field(gt=0, lt=65536)] | None = Field(
        default=None, description="the measured part ends when the program listens on this TCP port"
    )
    timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _is_command(self) -> WorkloadTable:
        own = ("data_paths", "ready_when", "ready_port", "timeout_seconds")
        is_own = self.kind in ("command", "service")
        if not is_own and (given := [key for key in own if getattr(self, key)]):
            reason = f'{given[0]} applies only to kind "command" or "service", not to {self.kind!r}'
            raise ValueError(reason)
        if self.ready_when is not None and self.ready_port is not None:
            reason = "ready_when and ready_port both end the measured part; remove one of them"
            raise ValueError(reason)
        return self

    @model_validator(mode="after")
    def _is_service(self) -> WorkloadTable:
        for key, field in ServiceKeys.model_fields.items() if self.kind != "service" else ():
            if getattr(self, key) != field.default:
                raise ValueError(f'{key} applies only to kind "service", not to {self.kind!r}')
        if self.kind == "service" and not self.load:
            raise ValueError('kind "service" needs `load`, the command that drives the server')
        if self.kind == "service" and self.ready_when is None and self.ready_port is None:
            reason = 'kind "service" needs ready_when or ready_port: when the server serves'
            raise ValueError(reason)
        return self

    @model_validator(mode="after")
    def _is_fio(self) -> WorkloadTable:
        if self.kind == "fio" and self.program != "fio":
            raise ValueError('program must be "fio" if kind is "fio"')
        for option in self.arguments if self.kind == "fio" else ():
            if reason := wrong_job_option(option):
                raise ValueError(f"arguments: {reason}")
        return self

    def to_model(self) -> Workload:
        command = None
        if self.kind in ("command", "service"):
            ready = (self.ready_when, self.ready_port)
            command = CommandSpec(self.data_paths, *ready, self.timeout_seconds)
        return Workload(
            self.program,
            self.arguments,
            self.kind,
            self.min_memory_bytes or 0,
            command,
            self.service() if self.kind == "service" else None,
        )


class PackageTable(StrictTable):
    """A package whose name differs between families of distributions.

    A family without a name has no such package.
    """

    debian: DebianName
    redhat: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]*$")] | None = None


_Package = Annotated[
    Package,
    CheckedBy(
        DebianName | PackageTable,
        lambda one: Package(*([one, one] if isinstance(one, str) else dict(one).values())),
    ),
]
Packages = Annotated[tuple[Package, ...], CheckedBy(list[_Package], tuple)]


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
        default={},
        description=(
            "values of the definition's own {placeholders}, in arguments and names of cages, at"
            " this size"
        ),
    )
    writes: SizeBytes | None = Field(
        default=None, description="space that the workload needs for its own writes"
    )
    prepared: SizeBytes | None = Field(
        default=None, description="size of the data that [data] makes"
    )

    @model_validator(mode="after")
    def _check_placeholders(self) -> SizeTable:
        if taken := set(self.places) & {*PLACEHOLDERS, *OF_COMMANDS}:
            reason = f"places.{min(taken)} has the name of a placeholder that the agent fills in"
            raise ValueError(reason)
        return self

    def filled(self, text: str) -> str:
        """Return the text with the definition's own {placeholders} filled in."""
        for name, value in self.places.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    @property
    def total_bytes(self) -> int | None:
        return None if self.dataset is None else self.dataset * self.files


class DataTable(StrictTable):
    """A directory, {data} in a command, that the program `prepare` makes once.

    It is kept between runs, until the command, its programs, the datasets among its words or the
    seed change.
    """

    prepare: Annotated[
        tuple[str, ...], CheckedBy(Annotated[list[str], Field(min_length=1)], tuple)
    ] = Field(description="command that fills the empty directory {data}")
    made_by: Words = Field(
        (), description="programs that `prepare` calls; data of another version are made anew"
    )
    seed: int = 1
    writes: bool = Field(
        False, description="trials write to the data, which are restored before each"
    )
    timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3600.0

    @model_validator(mode="after")
    def _names_data(self) -> DataTable:
        if not any("{data}" in word for word in self.prepare):
            raise ValueError("prepare does not contain {data}, the directory that it fills")
        return self


class SetupStepTable(StrictTable):
    """A program that runs to its end before the counters start.

    It runs in the trial's slice (`same`), or in a sibling slice with the same limits (`other`).
    """

    program: str
    arguments: Words = ()
    slice: Literal["same", "other"] = "same"


class LevelTable(StrictTable):
    """The changes that one level makes to a trial.

    A `workload` replaces the experiment's. The `arguments` of all levels follow those of the
    workload, and their `load_arguments` those of a service's load.
    """

    arguments: Words = ()
    load_arguments: Words = ()
    cache: CacheState | None = None
    read_ahead_kb: Annotated[int, Field(ge=0)] | None = None
    cage: str | None = None
    workload: Annotated[Workload, CheckedBy(WorkloadTable)] | None = None
    before: Annotated[SetupStep, CheckedBy(SetupStepTable)] | None = None
    storage: Storage | None = Field(
        default=None,
        description="`data` is the data directory, `container_layer` a container's writable layer",
    )
    machine_memory_bytes: SizeBytes | DatasetFraction | None = Field(
        default=None,
        description="memory that the machine keeps for the trial; pagecage reserves the rest",
    )
    dirty_bytes: SizeBytes | None = Field(
        default=None, description="vm.dirty_bytes for the trial: from this amount on, writers wait"
    )
    dirty_background_bytes: SizeBytes | None = Field(
        default=None,
        description=(
            "vm.dirty_background_bytes for the trial: from this amount on, the kernel writes back"
        ),
    )
    driver: DriverName | None = Field(
        default=None,
        description="the driver that runs the workload in its cage (docs/CONTAINERS.md)",
    )
    enforced_by: Enforcer | None = Field(
        default=None,
        description="enforcer of the cage's I/O limits: cgroup or volume (docs/CLOUD.md)",
    )
    files: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="number of files among which the data of the size are divided"
    )
