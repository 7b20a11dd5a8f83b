"""Options that several verbs share, and their types."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter, Token
from cyclopts.validators import Number

from pagecage.checkout import OWN, TOP
from pagecage.errors import PagecageError, exclusive, nearest
from pagecage.model.cage import Enforcer
from pagecage.model.trial import COLLECTORS, CONDITIONS, DriverName
from pagecage.terminal import COMMON, notify
from pagecage.units import parse_seconds
from pagecage.verdicts.repeats import FEWEST, MOST_REPEATS

if TYPE_CHECKING:
    from pagecage.definitions.reader import Definitions


_LONGEST_SECONDS = 30 * 86400
_MOST_NAMES = 3
_TIMEOUT_SECONDS = 3600.0
CAGES = Group.create_ordered("Cages and cloud volumes")
DATA = Group.create_ordered("Data and page cache")
SERVER = Group.create_ordered("Servers")
IMAGE = Group.create_ordered("Container images")
REPEATS = Group.create_ordered("Repeats and size")
GATES = Group.create_ordered("Gates")
HOST = Group.create_ordered("Host and measurement")
"""Headings of the help, in their order."""


def whole(least: int, most: int | None = None) -> Parameter:
    """Return the parser of a whole number from `least` to `most`, both included."""

    def digits(_: type[int], tokens: Sequence[Token]) -> int:  # cyclopts accepts 1.5 and 1e9
        if not re.fullmatch(r"-?[0-9]{1,4000}", tokens[0].value):
            raise ValueError(f"{tokens[0].value!r} is not a whole number")
        return int(tokens[0].value)

    return Parameter(converter=digits, validator=Number(gte=least, lte=most), metavar="N")


Positive = Annotated[int, whole(1, 2**53)]
Repeats = Annotated[int, whole(1, MOST_REPEATS)]
Bound = Annotated[int, whole(FEWEST, MOST_REPEATS)]
Port = Annotated[int, whole(1, 65535), Parameter(metavar="PORT")]


def _seconds(_: type[float], tokens: Sequence[Token]) -> float:
    option, text = tokens[0].keyword or "TIME", tokens[0].value
    seconds = parse_seconds(text, option)
    if seconds > _LONGEST_SECONDS:
        raise PagecageError(f"{option}: {text} is longer than 30 days", "write a shorter time")
    return seconds


Duration = Annotated[float, Parameter(converter=_seconds, metavar="TIME")]
"""A time in seconds, typed with its unit: 30s, 2min, 500us."""
Share = Annotated[float, Parameter(validator=Number(gt=0, lte=1), metavar="FACTOR")]


def refusal(text: str, *, is_folder: bool, must_exist: bool = False) -> str | None:
    """Return a clause that says why a path is unsuitable, or None if it is suitable."""
    if not text or "\0" in text:
        return "is not a valid path"
    try:
        is_directory = stat.S_ISDIR(os.stat(text).st_mode)  # noqa: PTH116 - Path.is_dir() hides the reason
    except FileNotFoundError:
        return "does not exist" if must_exist else _creation_obstacle(Path(text), is_folder)
    except OSError as error:  # a name that is too long, a file as a directory, no permission
        return f"cannot be used: {error.strerror}"
    if is_folder is is_directory:
        return None
    return "is not a directory" if is_folder else "is a directory"


def _creation_obstacle(path: Path, is_folder: bool) -> str | None:
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not is_folder and above != path.absolute().parent:
        return f"cannot be created: {path.parent} does not exist"
    is_writable = os.access(above, os.W_OK | os.X_OK)
    return None if is_writable else f"cannot be created: {above} is not writable"


def _option(*, is_folder: bool, must_exist: bool) -> Parameter:
    def converted(_: type[Path], tokens: Sequence[Token]) -> Path:
        text = tokens[0].value
        if reason := refusal(text, is_folder=is_folder, must_exist=must_exist):
            raise ValueError(f"{text!r} {reason}")
        return Path(text)

    return Parameter(converter=converted, metavar="DIR" if is_folder else "FILE")


Folder = Annotated[Path, _option(is_folder=True, must_exist=False)]
"""A directory that exists or can be created."""
ExistingFolder = Annotated[Path, _option(is_folder=True, must_exist=True)]
ExistingFile = Annotated[Path, _option(is_folder=False, must_exist=True)]
NewFile = Annotated[Path, _option(is_folder=False, must_exist=False)]
"""A file to write."""


def parse_disks(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, _, folder = word.partition("=")
        if not name or not folder:
            raise PagecageError(f"--disk: {word!r} is not NAME=DIR", "--disk wal=/mnt/other")
        if name in found:
            raise PagecageError(f"--disk: {name!r} is given twice", "give each disk once")
        if reason := refusal(folder, is_folder=True):
            raise PagecageError(f"--disk {name}: {folder!r} {reason}", "name a directory")
        found[name] = str(Path(folder).absolute())
    return found


@Parameter(name="*", group=CAGES)
@dataclass(frozen=True, kw_only=True)
class OfferOptions:
    """Options of volumes of the catalogue.

    Parameters
    ----------
    size
        Size of a volume of the catalogue, for example 500GiB
    instance
        Instance type of the volume, for example m7i.large, with its memory
    iops
        Provisioned IOPS, for types that have them
    throughput
        Provisioned throughput, in the provider's unit or as 250MiB
    start
        Credit buckets at the start: full, half or drained
    scale
        Factor for every limit and credit bucket, but not for memory
    latency
        Least latency of a request, for example 500us; few types publish it
    """

    size: Annotated[str | None, Parameter(metavar="SIZE")] = None
    instance: Annotated[str | None, Parameter(metavar="TYPE")] = None
    iops: Positive | None = None
    throughput: Annotated[str | None, Parameter(metavar="RATE")] = None
    start: Annotated[
        Literal["full", "half", "drained"], Parameter(metavar="FILL", show_choices=False)
    ] = "full"
    scale: Annotated[float, Parameter(validator=Number(gt=0, lte=1000), metavar="FACTOR")] = 1.0
    latency: Duration | None = None


@Parameter(name="*", group=CAGES)
@dataclass(frozen=True, kw_only=True)
class VolumeOptions(OfferOptions):
    """Options of a volume of the catalogue, such as aws-gp3. They do not apply to other cages.

    Parameters
    ----------
    memory
        Memory limit instead of the instance's memory, for example 2GiB
    """

    memory: Annotated[str | None, Parameter(metavar="SIZE")] = None


@Parameter(name="*", group=CAGES)
@dataclass(frozen=True, kw_only=True)
class CandidateOptions(OfferOptions):
    """Options that select the volumes to compare.

    Parameters
    ----------
    provider
        Only volumes of this provider: aws, azure, digitalocean or gcp
    type
        Only volume types whose name contains this text
    size
        Size of the volumes; by default the smallest that holds the run's data
    latency
        Time of a request at the volumes, for example 500us, instead of the provider's statement
    """

    provider: Annotated[str | None, Parameter(metavar="NAME")] = None
    type: Annotated[str | None, Parameter(metavar="TEXT")] = None


HOSTS = ("auto", "local", "vm")
HostName = Annotated[str, Parameter(metavar="HOST")]
Fresh = Annotated[Literal["never", "run", "block", "trial"], Parameter(metavar="WHEN")]
Treatments = Annotated[
    tuple[str, ...], Parameter(consume_multiple=False, metavar="FACTOR=LEVEL", group=REPEATS)
]
Dataset = Annotated[str, Parameter(metavar="NAME", group=REPEATS)]
_Paths = Annotated[tuple[str, ...], Parameter(metavar="PATH", group=DATA)]


@Parameter(name="*", group=HOST)
@dataclass(frozen=True, kw_only=True)
class TrialOptions:
    """Options of trials, of an experiment or of a program.

    Parameters
    ----------
    seed
        Seed of the order of trials; by default chosen at random and recorded
    volume
        A volume of the catalogue
    host
        auto (this machine if it can measure the whole plan, else vm), local, or vm
    data_dir
        Directory on the disk to measure (host local)
    disk
        Directory for a disk that a cage names, as wal=/mnt/other; repeatable
    driver
        Program that applies the cage; see docs/CONTAINERS.md
    enforced_by
        Enforcer of the I/O limits: cgroup (io.max), or volume (simulated)
    dilate
        Factor that slows a simulated volume down; auto fits an emulated guest
    cold_metadata
        Drop directory entries and inodes from memory before each trial (root)
    fresh_home
        Give the command an empty home directory in each trial
    same_output
        Exclude trials whose standard output differs from the other repeats
    """

    volume: VolumeOptions = VolumeOptions()
    seed: Annotated[
        int | None,
        whole(0, 2**63 - 1),  # the largest integer that pandas reads exactly from JSON
    ] = None
    host: Annotated[HostName, Parameter(group=COMMON, show_default=False)] = "auto"
    data_dir: Folder | None = None
    disk: Annotated[tuple[str, ...], Parameter(metavar="NAME=DIR")] = ()
    driver: Annotated[DriverName | None, Parameter(metavar="DRIVER", show_choices=False)] = None
    enforced_by: Annotated[Enforcer | None, Parameter(metavar="WHAT", show_choices=False)] = None
    dilate: Annotated[str | None, Parameter(metavar="FACTOR")] = None
    cold_metadata: Annotated[bool, Parameter(group=DATA)] = False
    fresh_home: bool = False
    same_output: bool = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions(TrialOptions):
    """Options of a run on any host.

    Parameters
    ----------
    host
        auto (this machine if it can measure the whole plan, else vm), local, vm, or a group of
        ansible/inventory
    cage
        Cage instead of the experiment's cages, without limits too; repeatable
    dataset
        Size of the data: auto, full, default, emulated or smoke. auto is the largest whose plan
        ends within the budget, and emulated in an emulated guest
    budget
        Time for the whole plan with --dataset auto, for example 20min (default: 3min)
    treatment
        Run only treatments with this level, for example cage=uncaged; repeatable, also with
        another level of the same factor
    repeats
        Repeats of each treatment
    until_ci
        Repeat until the 95 % interval of each treatment is within this share of its median: 5%
    max_repeats
        Most repeats with --until-ci (default: 30)
    ready_port
        Measure until the program listens on this TCP port, for experiments that run a command
    fresh
        When to restore the guest's saved state: never, or before the run, each block or trial
    """

    cage: Annotated[
        tuple[str, ...], Parameter(metavar="CAGE", group=COMMON, consume_multiple=False)
    ] = ()
    dataset: Annotated[Dataset, Parameter(group=COMMON)] = "auto"
    budget: Annotated[Duration | None, Parameter(group=REPEATS)] = None
    treatment: Annotated[Treatments, Parameter(group=COMMON)] = ()
    repeats: Annotated[Repeats | None, Parameter(group=COMMON)] = None
    until_ci: Annotated[str | None, Parameter(metavar="PERCENT", group=REPEATS)] = None
    max_repeats: Annotated[Bound | None, Parameter(group=REPEATS)] = None
    ready_port: Annotated[Port | None, Parameter(group=SERVER)] = None
    fresh: Annotated[Fresh | None, Parameter(group=HOST, show_choices=False)] = None


@Parameter(name="*", group=HOST)
@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """Options of a run on a group of hosts.

    Parameters
    ----------
    fleet
        replicate: run the whole plan on every host. spread: distribute its repeats over similar
        hosts
    skip_unreachable
        Leave out hosts that do not answer, instead of refusing to start
    mixed
        Spread even over hosts with different kernels, processors or disks
    """

    fleet: Annotated[
        Literal["replicate", "spread"], Parameter(metavar="MODE", show_choices=False)
    ] = "replicate"
    skip_unreachable: bool = False
    mixed: bool = False


def given_options(options: object, names: Iterable[str] = ()) -> list[str]:
    """Return the options that differ from their defaults, as they are typed: `--max-repeats`."""
    defaults = vars(type(options)())
    given = (name for name in names or defaults if getattr(options, name) != defaults[name])
    return [f"--{name.replace('_', '-')}" for name in given]


def chosen_conditions(options: object) -> tuple[str, ...]:
    return tuple(name for name in CONDITIONS if getattr(options, name.replace("-", "_")))


def definitions() -> Definitions:
    """Return the experiments and cages of pagecage and of the user's project."""
    from pagecage.definitions.reader import Definitions, known_programs

    found = Definitions(TOP, known_programs(TOP), OWN)
    _tell_replaced("experiments", tuple(found.experiments.replacing()))
    _tell_replaced("cages", tuple(found.cages.replacing()))
    return found


@cache
def _tell_replaced(kind: str, names: tuple[str, ...]) -> None:
    if names:
        more = len(names) - _MOST_NAMES
        shown = ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        notify(f"{kind} of {OWN} that replace pagecage's own: {shown}")


def is_group(host: str) -> bool:
    """Return whether `host` names a group of an inventory instead of auto, local or vm."""
    return host not in HOSTS


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReplayOptions(TrialOptions):
    """Options of a program in cages.

    Parameters
    ----------
    cold
        Path that starts out of the page cache, and whose disk is limited; repeatable
    cache
        State of these files before a trial: cold, resident or any
    ready_port
        Measure until the program listens on this TCP port, then end it
    ready_when
        Measure until output matches this regular expression, then end it
    copy
        Path to copy to the host's data disk, where the program runs; repeatable
    writes
        Restore the files of --copy before each trial: the command writes to them
    copy_program
        Copy the program with its shared libraries
    repeats
        Repeats in each cage
    timeout
        Longest duration of a trial, for example 10min (default: 1h)
    collectors
        Of iostat, sar, vmtouch, bpftrace, blocklat, perf-mem, damon
    """

    cold: Annotated[_Paths, Parameter(group=COMMON)] = ()
    cache: Annotated[
        Literal["cold", "resident", "any"],
        Parameter(metavar="STATE", group=DATA, show_choices=False),
    ] = "cold"
    copy: _Paths = ()
    writes: Annotated[bool, Parameter(group=DATA)] = False
    copy_program: Annotated[bool, Parameter(group=DATA)] = False
    ready_port: Annotated[Port | None, Parameter(group=COMMON)] = None
    ready_when: Annotated[str | None, Parameter(metavar="REGEX", group=SERVER)] = None
    repeats: Annotated[Repeats, Parameter(group=COMMON)] = 1
    timeout: Annotated[Duration, Parameter(group=HOST, show_default=False)] = _TIMEOUT_SECONDS
    collectors: Annotated[str, Parameter(metavar="NAMES", group=HOST)] = "none"


@Parameter(name="*", group=SERVER)
@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Options of a replay of a server under load.

    Parameters
    ----------
    serve
        Server to run in the cage instead of COMMAND, with a --ready option
    load
        Command that drives the server from outside the cage; its time is measured
    warm_up
        Run the load for this time first, for example 10s
    settle
        Pause between the warm-up and the measured load
    metric
        Figure in the load's output: a regular expression with one group, named by (?P<name>...) or
        by the words before its first = or :, or name=$.json.path. The first is the main figure
    ready_timeout
        The server must serve within this time
    stop_signal
        Signal that ends the server: TERM, INT, QUIT, HUP or KILL
    """

    serve: Annotated[str | None, Parameter(metavar="COMMAND")] = None
    load: Annotated[str | None, Parameter(metavar="COMMAND")] = None
    warm_up: Duration | None = None
    settle: Duration | None = None
    metric: Annotated[
        tuple[str, ...], Parameter(metavar="PATTERN", consume_multiple=False, negative=())
    ] = ()
    ready_timeout: Duration | None = None
    stop_signal: Annotated[
        Literal["TERM", "INT", "QUIT", "HUP", "KILL"],
        Parameter(metavar="SIGNAL", show_choices=False),
    ] = "TERM"


_Texts = Annotated[tuple[str, ...], Parameter(negative=(), metavar="TEXT")]


@Parameter(name="*", group=IMAGE)
@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Options of a container image, which is replayed instead of a program of this machine.

    Parameters
    ----------
    image
        Image in Docker or podman on this machine, or a file of docker save
    pull
        Let the engine fetch an image that this machine lacks
    env
        Variable NAME=VALUE, or NAME with its value here; repeatable
    env_file
        File of variables, as for docker run; repeatable
    volume
        HOST:CONTAINER[:ro], a path of this machine in the container; repeatable
    publish
        Port that the container uses on the host's network; repeatable
    compose
        Compose file with the image; the CAGE compose has the file's own limits
    service
        Service of the Compose file
    """

    image: Annotated[str | None, Parameter(metavar="NAME")] = None
    pull: Annotated[bool, Parameter(negative=())] = False
    env: Annotated[_Texts, Parameter(name=("--env", "-e"))] = ()
    env_file: Annotated[_Texts, Parameter(metavar="FILE")] = ()
    volume: _Texts = ()
    publish: Annotated[_Texts, Parameter(name=("--publish", "-p"), metavar="PORT")] = ()
    compose: Annotated[str | None, Parameter(metavar="FILE")] = None
    service: Annotated[str | None, Parameter(metavar="NAME")] = None


def check_readiness(options: ReplayOptions) -> None:
    """Raise PagecageError for an invalid --ready-when, or for --ready-port beside it."""
    if options.ready_when is not None and options.ready_port is not None:
        raise exclusive("--ready-when", "--ready-port")
    try:
        re.compile(options.ready_when or "")
    except (re.error, OverflowError, RecursionError) as error:
        message = f"--ready-when: {options.ready_when!r} is not a regular expression: {error}"
        raise PagecageError(
            message, "put a backslash before special characters, as in '\\(ready\\)'"
        ) from None


def collector_names(text: str) -> tuple[str, ...]:
    """Return the names in a list of collectors. Raises PagecageError for an unknown one."""
    names = () if text == "none" else tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in COLLECTORS:
            message = f"--collectors: there is no collector {name!r}"
            raise PagecageError(message, nearest(name, [*COLLECTORS, "none"]))
    return names


def parse_percent(option: str, text: str, bounds: str = "between 0 and 100 %") -> float:
    """Return the share that a percentage gives, as 0.05 for `5%`. Raises PagecageError."""
    match = re.fullmatch(r"([0-9]{1,2}(?:\.[0-9]+)?)\s*%", text)
    if not match or not float(match[1]):
        raise PagecageError(f"{option}: {text!r} is not a percentage {bounds}", "write it as 5%")
    return float(match[1]) / 100
