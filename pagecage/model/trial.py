"""One treatment, to be run once on a freshly prepared host: what goes to the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from pagecage.model.cage import Cage, cage_from_json, cage_to_json

CACHE_STATES = ("cold", "resident", "any")
COLLECTORS = ("iostat", "sar", "vmtouch", "bpftrace", "blocklat")
TRACERS = ("bpftrace", "blocklat")
"""The collectors that are attached once per machine state, not once per trial."""
STORAGES = ("data", "null_blk", "dm_delay", "container_layer")
DriverName = Literal[
    "systemd-scope", "systemd-service", "docker", "docker-flags", "docker-api", "podman", "qemu-throttle"
]
DRIVERS: tuple[str, ...] = get_args(DriverName)
"""What runs a workload in its cage (pagecage/agent/drivers/); the first unless told otherwise."""
OWN_LIMITS = ("docker-flags", "docker-api", "qemu-throttle")
"""Drivers whose limits, or some of them, lie elsewhere than on the trial's slice."""


@dataclass(frozen=True)
class Dataset:
    """A file of known content: `size_bytes` of `fill` made from `seed` by pcgen; its name says all three."""

    size_bytes: int
    seed: int = 1
    fill: str = "random"

    @property
    def file_name(self) -> str:
        """The file's name in the data directory; equal names mean equal bytes."""
        return f"{self.fill}-{self.size_bytes}-{self.seed}.bin"


@dataclass(frozen=True)
class Workload:
    """The program to run. `handshake` programs speak the contract in workloads/README.md; a `command` knows none.

    The `arguments` of `fio` are options of one job. Otherwise
    `arguments` may hold {file}, {sidecar}, {data_dir} and {max_seconds}, and {files} as one of them; `min_memory_bytes`
    is the smallest MemoryMax in which it is known to work.
    """

    program: str
    arguments: tuple[str, ...]
    kind: str = "handshake"
    min_memory_bytes: int = 0
    command: CommandSpec | None = None


@dataclass(frozen=True)
class SetupStep:
    """A program of workloads/ run to its end before the counters begin; `slice` is the trial's own or another."""

    program: str
    arguments: tuple[str, ...]
    slice: str = "same"


@dataclass(frozen=True)
class Trial:
    """One row of a plan. `max_seconds` bounds the measured part, `timeout_seconds` the workload's whole life.

    There are `files` files like `dataset`, with the seeds 1 to `files`. `storage` other than "data" is made for the
    trial; `machine_memory_bytes` is what is left of the machine's memory, `dirty_limits` what of vm.dirty_bytes and
    vm.dirty_background_bytes is set for it. The workload writes up to `writes_bytes` files of its own.
    `driver` is what runs it in its cage.
    """

    trial_id: str
    experiment: str
    treatment: Mapping[str, str]
    repeat: int
    block: int
    position: int
    workload: Workload
    cage: Cage
    cache: str = "any"
    dataset: Dataset | None = None
    read_ahead_kb: int | None = None
    collectors: tuple[str, ...] = ()
    max_seconds: float | None = None
    timeout_seconds: float = 600.0
    files: int = 1
    before: SetupStep | None = None
    storage: str = "data"
    storage_latency_us: int | None = None
    machine_memory_bytes: int | None = None
    dirty_limits: Mapping[str, int] = field(default_factory=dict)
    writes_bytes: int = 0
    driver: str = DRIVERS[0]

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """Every file of the trial, in order; none where it reads none."""
        first = self.dataset
        return () if first is None else tuple(replace(first, seed=first.seed + n) for n in range(self.files))

    @property
    def dataset_bytes(self) -> int:
        """Bytes of all its files together."""
        return sum(dataset.size_bytes for dataset in self.datasets)


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """The trial as it stands in plan.json and travels to the agent."""
    return {
        **asdict(trial),
        "treatment": dict(trial.treatment),
        "cage": cage_to_json(trial.cage),
        "collectors": list(trial.collectors),
        "dirty_limits": dict(trial.dirty_limits),
        "workload": _workload_to_json(trial.workload),
        "before": {**asdict(trial.before), "arguments": list(trial.before.arguments)} if trial.before else None,
    }


def _workload_to_json(workload: Workload) -> dict[str, Any]:
    command = command_to_json(workload.command)
    return {**asdict(workload), "arguments": list(workload.arguments), "command": command}


def trial_from_json(data: Mapping[str, Any]) -> Trial:
    """The inverse of `trial_to_json`."""
    workload = {
        **data["workload"],
        "arguments": tuple(data["workload"]["arguments"]),
        "command": command_from_json(data["workload"].get("command")),
    }
    return Trial(
        **{
            **data,
            "workload": Workload(**workload),
            "cage": cage_from_json(data["cage"]),
            "dataset": Dataset(**data["dataset"]) if data["dataset"] else None,
            "collectors": tuple(data["collectors"]),
            "before": _step(data.get("before")),
        }
    )


def _step(data: Mapping[str, Any] | None) -> SetupStep | None:
    return SetupStep(data["program"], tuple(data["arguments"]), data["slice"]) if data else None


@dataclass(frozen=True)
class CommandSpec:
    """How a `command` is measured: from its start to its exit, or until it serves.

    `data_paths` are files, or directories for all files below, whose cache state is set and measured. It serves when a
    line of its output matches `ready_when` or when it listens on TCP `ready_port`. `directory` is where it runs (None:
    where the agent does). `is_literal`: no {place} is filled into its arguments. `streams_output` hands what it prints
    to whoever started the run, and `takes_input` feeds it with their standard input.
    """

    data_paths: tuple[str, ...] = ()
    ready_when: str | None = None
    ready_port: int | None = None
    timeout_seconds: float | None = None
    directory: str | None = None
    is_literal: bool = False
    streams_output: bool = False
    takes_input: bool = False

    @property
    def serves(self) -> bool:
        """Whether its time ends when it serves, not when it exits."""
        return self.ready_when is not None or self.ready_port is not None


def command_to_json(command: CommandSpec | None) -> dict[str, Any] | None:
    """The command as it stands in a plan."""
    return None if command is None else {**asdict(command), "data_paths": list(command.data_paths)}


def command_from_json(data: Mapping[str, Any] | None) -> CommandSpec | None:
    """The inverse of `command_to_json`."""
    return None if data is None else CommandSpec(**{**data, "data_paths": tuple(data["data_paths"])})
