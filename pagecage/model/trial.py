"""A trial: one program with one level of each factor, its data, cage, image and packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from pagecage.model.cage import Cage
from pagecage.model.collectors import TRACES, OwnCollector
from pagecage.model.json_codec import OMITTED, Json, JsonView, from_json, to_json
from pagecage.model.services import ServiceSpec

_INSTALLERS = {"debian": "apt-get", "redhat": "dnf"}
FAMILIES = tuple(_INSTALLERS)
"""Families of distributions whose package manager can be asked."""


@dataclass(frozen=True)
class Package:
    """A package: its name on Debian, and on Red Hat's distributions, None if they have none."""

    debian: str
    redhat: str | None

    def name_on(self, family: str | None) -> str | None:
        """Return the name on a family of distributions, or None if it has no such package."""
        return {"debian": self.debian, "redhat": self.redhat}.get(family or "")


def missing_packages(facts: JsonView, packages: Sequence[Package]) -> tuple[str, str] | None:
    """Return the reason and the fix if a host lacks packages, else None.

    Without a known family of distributions they are not checked; a missing program is reported
    anyway.
    """
    found = facts.get("packages") or {}
    family, versions = found.get("family"), found.get("versions", {})
    names = dict.fromkeys(name for package in packages if (name := package.name_on(family)))
    missing = [name for name in names if versions.get(name) is None]
    if not missing:
        return None
    verb = "package {} is" if len(missing) == 1 else "packages {} are"
    reason = f"{verb.format(', '.join(missing))} missing"
    return reason, f"sudo {_INSTALLERS[str(family)]} install {' '.join(missing)}"


DIGEST = "sha256:"
IMAGE_DRIVERS = ("docker", "podman")
"""Drivers that can run an image. The first is the default."""


@dataclass(frozen=True)
class BindMount:
    """A file or directory of the host, `source`, at the path `target` of a container."""

    source: str
    target: str
    is_read_only: bool = False


@dataclass(frozen=True)
class Variable:
    """A variable of a container. Its value may be a secret, so that it is None in plan.json."""

    name: str
    variable_value: str | None


@dataclass(frozen=True)
class ImageSpec:
    """An image and the settings of its container.

    `reference` is the user's spelling, `image_id` the digest of the image's configuration. The
    engine loads `archive`, a path on the host; None if the engine has the image already.
    `env_files` are paths on the host. `user` and `directory` replace those of the image; None
    leaves them. `ports` must be free on the host, whose network
    the container shares. `layer_bytes` is the size of all layers without compression.
    """

    reference: str
    image_id: str
    architecture: str
    layer_bytes: int
    archive: str | None = None
    environment: tuple[Variable, ...] = ()
    env_files: tuple[str, ...] = ()
    mounts: tuple[BindMount, ...] = ()
    ports: tuple[int, ...] = ()
    directory: str | None = None
    user: str | None = None


def environment_names(image: ImageSpec) -> list[str]:
    """Return the names of the container's variables, without those of the image and of files."""
    return sorted({variable.name for variable in image.environment})


ON_DATASETS = ("{file}", "{files}")
ORIGINAL, DATA = "original", "data"
"""Names of the saved tree, and of the tree that programs use."""


@dataclass(frozen=True)
class TrialData:
    """A directory, {data} in a command, that is the same before each trial.

    The command `prepare` makes it once, with {data}, {programs}, {seed}, {file} and {files} in its
    words; `made_by` names further programs whose change makes it anew. If trials write to it
    (`writes`), it is restored before each. `size_bytes` is an estimate for the space on the disk;
    0 if it is unknown. Without `prepare`, the controller has copied it to `copied_to`/original.
    """

    prepare: tuple[str, ...] = ()
    made_by: tuple[str, ...] = ()
    seed: int = 1
    writes: bool = False
    timeout_seconds: float = 3600.0
    size_bytes: int = 0
    copied_to: str | None = None

    @property
    def reads_datasets(self) -> bool:
        """True if the command is given the trial's datasets."""
        return any(place in word for word in self.prepare for place in ON_DATASETS)

    @property
    def disk_bytes(self) -> int:
        """Its bytes on the disk: twice its size with an original that is not an upload."""
        return self.size_bytes * (2 if self.writes and self.copied_to is None else 1)


CACHE_STATES = ("cold", "resident", "any")
Condition = Literal["cold-metadata", "fresh-home", "same-output"]
"""Conditions that a trial may be given besides its cache state (docs/METHODOLOGY.md)."""
COLD_METADATA, FRESH_HOME, SAME_OUTPUT = CONDITIONS = get_args(Condition)
COLLECTORS = tuple(TRACES)
TRACERS = ("bpftrace", "blocklat")
"""Collectors that are attached once per machine state, not once per trial."""
Storage = Literal["data", "container_layer"]
DriverName = Literal[
    "systemd-scope",
    "systemd-service",
    "cgroupfs",
    "docker",
    "docker-flags",
    "docker-api",
    "podman",
    "qemu-throttle",
    "process",
]
DRIVERS: tuple[str, ...] = get_args(DriverName)
"""Programs that run a workload in its cage (pagecage/agent/drivers/). The first is the default."""
OWN_LIMITS = ("docker-flags", "docker-api", "qemu-throttle")
"""Drivers with limits elsewhere than on the trial's slice."""
CGROUPFS = "cgroupfs"
"""The driver that needs no systemd: the agent makes the cgroup itself."""
WITHOUT_LIMITS = "process"
"""The driver of trials without limits on a host that cannot hold any."""


@dataclass(frozen=True)
class Dataset:
    """A file of known content, made by pcgen: `size_bytes` of `fill`, from `seed`."""

    size_bytes: int
    seed: int = 1
    fill: str = "random"

    @property
    def file_name(self) -> str:
        """The file's name in the data directory. Equal names mean equal content."""
        return f"{self.fill}-{self.size_bytes}-{self.seed}.bin"


@dataclass(frozen=True)
class Workload:
    """The program to run.

    `kind` is `handshake` (docs/HANDSHAKE.md), `command`, `service` or `fio`. The `arguments` of
    `fio` are options of one job. Those of other kinds may contain {file}, {sidecar}, {data_dir} and
    {max_seconds}; an argument {files} stands for all files. Program and arguments of a command or a
    service may contain {programs}, the folder of the definition's own programs, and {data}, its
    prepared data. `min_memory_bytes` is the smallest MemoryMax in which the program is known to
    work. A service has the settings of a `command`, and those of its load in `service`.
    """

    program: str
    arguments: tuple[str, ...]
    kind: str = "handshake"
    min_memory_bytes: int = 0
    command: CommandSpec | None = None
    service: ServiceSpec | None = field(default=None, metadata=OMITTED)

    @property
    def is_built_in(self) -> bool:
        """True if the program is one of workloads/; one with a slash is a path of its own."""
        return self.kind == "handshake" and "/" not in self.program


@dataclass(frozen=True)
class SetupStep:
    """A program of workloads/ that runs before the measurement, in `slice`: same or other."""

    program: str
    arguments: tuple[str, ...]
    slice: str = "same"


@dataclass(frozen=True)
class Trial:
    """One row of a plan.

    `max_seconds` limits the measured part, `timeout_seconds` the lifetime of the workload. There
    are `files` files like `dataset`, with consecutive seeds. Any `storage` but "data" is made for
    the trial. `machine_memory_bytes` is the memory left to the machine. `dirty_limits` are the
    values of vm.dirty_bytes and vm.dirty_background_bytes. The workload writes up to `writes_bytes`
    to its own files. `packages` must be installed on the host. `data` are prepared or copied data.
    `own_collectors` are those that the definition brings along. `conditions` are of CONDITIONS.
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
    machine_memory_bytes: int | None = None
    dirty_limits: Mapping[str, int] = field(default_factory=dict)
    writes_bytes: int = 0
    driver: str = DRIVERS[0]
    packages: tuple[Package, ...] = ()
    data: TrialData | None = None
    conditions: tuple[str, ...] = field(default=(), metadata=OMITTED)
    own_collectors: tuple[OwnCollector, ...] = field(default=(), metadata=OMITTED)

    @property
    def identity(self) -> Json:
        """The values that a trial shares with its records, by the keys of a record."""
        keys = ("experiment", "trial_id", "treatment", "repeat", "block", "position")
        return {key: getattr(self, key) for key in keys}

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        first = self.dataset
        return (
            ()
            if first is None
            else tuple(replace(first, seed=first.seed + n) for n in range(self.files))
        )

    @property
    def dataset_bytes(self) -> int:
        return sum(dataset.size_bytes for dataset in self.datasets)


def trial_to_json(trial: Trial) -> Json:
    return dict(to_json(trial))


def recorded_trial(trial: Trial) -> Json:
    """Return the trial as JSON data for plan.json, without values that may be secrets."""
    data = trial_to_json(trial)
    data["workload"]["command"] = recorded_command(trial.workload.command)
    return data


def recorded_command(command: CommandSpec | None) -> Json | None:
    data: Json | None = to_json(command)
    for variable in ((data or {}).get("image") or {}).get("environment", ()):
        variable["variable_value"] = None
    return data


def trial_from_json(data: JsonView) -> Trial:
    former = {"storage_latency_us"}  # of the disks that earlier versions made (decision 35)
    return from_json(Trial, {key: data[key] for key in data if key not in former}, "trial")


@dataclass(frozen=True)
class CommandSpec:
    """Settings of a `command`, which is measured from its start to its exit, or until it serves.

    The cache state of `data_paths` (files, or directories with all files below) is set and
    measured. The command serves when a line of its output matches `ready_when` or when it listens
    on TCP `ready_port`. It runs in `directory` (None: the agent's). If `is_literal`, its arguments
    contain no {placeholders}. With `streams_output` its output goes to the user, and with
    `takes_input` it reads the user's standard input. With `image` it is a program of that image.
    """

    data_paths: tuple[str, ...] = ()
    ready_when: str | None = None
    ready_port: int | None = None
    timeout_seconds: float | None = None
    directory: str | None = None
    is_literal: bool = False
    streams_output: bool = False
    takes_input: bool = False
    image: ImageSpec | None = field(default=None, metadata=OMITTED)

    @property
    def serves(self) -> bool:
        """True if the measured part ends when the command serves, not when it exits."""
        return self.ready_when is not None or self.ready_port is not None
