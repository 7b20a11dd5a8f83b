"""Options that several verbs share, and their types."""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, Token
from cyclopts.validators import Number

from pagecage.checkout import OWN, TOP
from pagecage.cli.output import notify
from pagecage.cloud.catalogue import Provider, VolumeType
from pagecage.cloud.profile import CageOptions, LimitProfile, find_instance, profile_of
from pagecage.cloud.volume_request import VolumeRequest, parse_throughput
from pagecage.definitions.reader import known_programs
from pagecage.errors import PagecageError, nearest
from pagecage.model.cage import CloudVolume, Enforcer
from pagecage.model.trial import COLLECTORS, CONDITIONS, DriverName
from pagecage.units import exact_size, page_floor_bytes, parse_size_bytes
from pagecage.verdicts.repeats import FEWEST, MOST_REPEATS

if TYPE_CHECKING:
    from pagecage.definitions.reader import Definitions


_LONGEST_SECONDS = 30 * 86400
_MOST_NAMES = 3
_TIMEOUT_SECONDS = 3600.0


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
Seconds = Annotated[
    float, Parameter(validator=Number(gt=0, lte=_LONGEST_SECONDS), metavar="SECONDS")
]
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


def shown(path: Path) -> str:
    """Return a path below the working directory as relative to it, and any other unchanged."""
    try:
        here = Path.cwd()
    except OSError:
        return str(path)
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn an OSError from writing to `target`, which the user named, into a PagecageError."""
    try:
        yield
    except OSError as error:
        above = shlex.quote(str(target.parent))
        raise PagecageError(
            f"{target} cannot be written: {error.strerror or error}", f"ls -ld {above}"
        ) from None


def parse_disks(words: Sequence[str]) -> dict[str, str]:
    """Return a directory by the name of each disk."""
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


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class VolumeOptions:
    """Options of a cloud volume. They do not apply to a cage.

    Parameters
    ----------
    size
        Size of the volume, for example 500GiB
    iops
        Provisioned IOPS, for types that have them
    throughput
        Provisioned throughput: a number in the provider's unit, or with a unit, for example 250MiB
    instance
        Instance type that the volume is attached to, for example m7i.large; adds its limits and its
        memory
    scale
        Factor for every limit and credit bucket; bursts last as long, memory stays
    start
        Fill of the credit buckets at the start
    memory
        Memory limit instead of the instance's memory, for example 2GiB
    latency_us
        Least latency of a request in microseconds; the catalogue has it for few types
    """

    size: Annotated[str | None, Parameter(metavar="SIZE")] = None
    iops: Positive | None = None
    throughput: Annotated[str | None, Parameter(metavar="RATE")] = None
    instance: Annotated[str | None, Parameter(metavar="TYPE")] = None
    scale: Annotated[float, Parameter(validator=Number(gt=0, lte=1000), metavar="FACTOR")] = 1.0
    start: Annotated[Literal["full", "half", "drained"], Parameter(metavar="FILL")] = "full"
    memory: Annotated[str | None, Parameter(metavar="SIZE")] = None
    latency_us: Positive | None = None


@dataclass(frozen=True)
class CatalogueEntry:
    """A name of the catalogue: a volume type, with a size if the name is that of a size."""

    provider: Provider
    kind: VolumeType
    size_bytes: int | None


def offered_providers(providers: tuple[Provider, ...], name: str | None) -> tuple[Provider, ...]:
    """Return the provider of this name, or all of them."""
    offered = tuple(provider for provider in providers if name in (None, provider.name))
    if not offered:
        raise PagecageError(
            f"there is no provider {name!r} in the catalogue",
            nearest(name or "", [provider.name for provider in providers]),
        )
    return offered


def catalogue_names(providers: tuple[Provider, ...]) -> dict[str, CatalogueEntry]:
    """Return every name of a volume type or a size in lower case."""
    kinds = [(provider, kind) for provider in providers for kind in provider.types]
    sizes = {
        f"{provider.name}-{tier_name}".lower(): CatalogueEntry(provider, kind, tier.size_bytes)
        for provider, kind in reversed(kinds)
        for tier_name, tier in kind.tiers.items()
    }
    return {
        **sizes,
        **{kind.name: CatalogueEntry(provider, kind, None) for provider, kind in kinds},
    }


def profile_for(
    providers: tuple[Provider, ...], name: str, volume: VolumeOptions, cages: list[str]
) -> tuple[LimitProfile, str]:
    """Return the limits of a volume, and the volume in one line."""
    names = catalogue_names(providers)
    entry = names.get(name.lower())
    if entry is None:
        hint = nearest(name, [*cages, *names])
        hint = hint if hint.startswith("did") else "pagecage cage list"
        raise PagecageError(f"there is no volume type and no cage {name!r}", hint)
    kind = entry.kind
    size = None if volume.size is None else parse_size_bytes(volume.size, "--size")
    if entry.size_bytes is not None and size is not None:
        raise PagecageError(f"{name} has a fixed size", "remove --size")
    request = VolumeRequest(
        entry.size_bytes if size is None else size,
        Fraction(volume.iops) if volume.iops else None,
        None if volume.throughput is None else parse_throughput(volume.throughput, kind),
    )
    instance = volume.instance
    found = None if instance is None else find_instance(entry.provider, kind, instance)
    memory = None if volume.memory is None else parse_size_bytes(volume.memory, "--memory")
    if memory is not None and page_floor_bytes(memory) == 0:
        raise PagecageError(f"--memory: {volume.memory} is less than a page", "--memory 64MiB")
    cage_options = CageOptions(volume.start, Fraction(str(volume.scale)), memory, volume.latency_us)
    profile = profile_of(entry.provider, kind, request, found, cage_options)
    return profile, describe_volume(profile.volume, tier_name(kind, request.size_bytes))


def tier_name(kind: VolumeType, size_bytes: int | None) -> str:
    """Return the name of the smallest tier of this size; "" for a type without tiers."""
    names = (name for name, tier in kind.tiers.items() if tier.size_bytes >= (size_bytes or 0))
    return next(names, "")


def describe_volume(volume: CloudVolume | None, tier: str = "") -> str:
    """Return a volume in one line ("P10, 128 GiB, on D2s_v5"); empty for None."""
    if volume is None:
        return ""
    throughput = volume.throughput_bytes_per_second
    parts = [
        tier,
        exact_size(volume.size_bytes, " ") if volume.size_bytes else "",
        f"{volume.iops} IOPS" if volume.iops else "",
        f"{exact_size(throughput, ' ')}/s" if throughput else "",
        f"on {volume.instance}" if volume.instance else "",
        f"at {volume.scale:g} of its speed" if volume.scale != 1 else "",
    ]
    return ", ".join(part for part in parts if part)


PROGRAMS = known_programs(TOP)
HOSTS = ("auto", "local", "vm")
HostName = Annotated[str, Parameter(metavar="HOST")]
SizeName = Annotated[str, Parameter(metavar="SIZE")]
Fresh = Annotated[Literal["never", "run", "block", "trial"], Parameter(metavar="WHEN")]
_Disks = Annotated[
    tuple[str, ...],
    Parameter(
        name="--disk",
        metavar="NAME=DIR",
        help="Directory on another disk for a disk that a cage names, such as wal=/mnt/other (host"
        " local). May be given several times",
    ),
]
_Seed = Annotated[
    int | None,
    whole(0, 2**63 - 1),  # the largest integer that pandas reads exactly from JSON
    Parameter(help="Seed of the order of trials; by default chosen at random and recorded"),
]
_Driver = Annotated[
    DriverName | None,
    Parameter(metavar="DRIVER", help="Program that applies the cage; see docs/CONTAINERS.md"),
]
_EnforcedBy = Annotated[
    Enforcer | None,
    Parameter(
        metavar="ENFORCER",
        help="Enforcer of the cage's I/O limits: cgroup (io.max), or volume, a simulated cloud"
        " volume with latencies and smooth limits; see docs/CLOUD.md",
    ),
]
_Dilate = Annotated[
    str | None,
    Parameter(
        metavar="FACTOR",
        help="Factor by which a simulated volume is slowed down; auto fits it to an emulated guest",
    ),
]
_ColdMetadata = Annotated[
    bool,
    Parameter(
        help="Drop directory entries and inodes from memory before each trial (root), so that cold"
        " files are looked up on the disk as well"
    ),
]
_FreshHome = Annotated[
    bool, Parameter(help="Give the command an empty home directory in each trial")
]
_SameOutput = Annotated[
    bool,
    Parameter(help="Exclude trials whose standard output differs from that of the other repeats"),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run on any host.

    Parameters
    ----------
    host
        Host to measure on: auto, local, vm, or a group of ansible/inventory. auto is local if
        this machine can measure the whole plan, else vm
    size
        Size of datasets: auto, full, default, emulated or smoke. auto is the largest whose plan
        ends within the budget on this machine, and emulated in an emulated guest
    budget
        Time for the whole plan with --size auto, for example 20min (default: 3min)
    cage
        Cage that replaces the experiment's cages; the control without limits stays
    treatment
        Run only treatments with this level, for example cage=uncaged. May be given several times
    repeats
        Repeats of each treatment
    until_ci
        Repeat until the 95 % interval of every treatment is within this share of its median,
        for example 5%
    max_repeats
        Most repeats with --until-ci (default: 30)
    fresh
        When to restore the guest's saved state: never, or before the run, each block, or each
        trial
    data_dir
        Directory on the disk to measure (host local)
    """

    host: HostName = "auto"
    size: SizeName = "auto"
    budget: Annotated[str | None, Parameter(metavar="TIME")] = None
    cage: Annotated[str | None, Parameter(metavar="CAGE")] = None
    treatment: Annotated[tuple[str, ...], Parameter(metavar="FACTOR=LEVEL")] = ()
    repeats: Repeats | None = None
    until_ci: Annotated[str | None, Parameter(metavar="PERCENT")] = None
    max_repeats: Bound | None = None
    seed: _Seed = None
    fresh: Fresh | None = None
    data_dir: Folder | None = None
    disk: _Disks = ()
    driver: _Driver = None
    enforced_by: _EnforcedBy = None
    dilate: _Dilate = None
    cold_metadata: _ColdMetadata = False
    fresh_home: _FreshHome = False
    same_output: _SameOutput = False


@Parameter(name="*")
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

    fleet: Annotated[Literal["replicate", "spread"], Parameter(metavar="MODE")] = "replicate"
    skip_unreachable: bool = False
    mixed: bool = False


def chosen_conditions(options: object) -> tuple[str, ...]:
    """Return the conditions of trials that the options ask for."""
    return tuple(name for name in CONDITIONS if getattr(options, name.replace("-", "_")))


def definitions() -> Definitions:
    """Return the experiments and cages of pagecage and of the user's project."""
    from pagecage.definitions.reader import Definitions

    found = Definitions(TOP, PROGRAMS, OWN)
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


_Path = Annotated[tuple[str, ...], Parameter(metavar="PATH")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """Options of a replay.

    Parameters
    ----------
    others
        Another cage to compare with; may be given several times
    no_control
        Leave out the run without limits
    repeats
        Repeats in each cage
    host
        Host to run on: auto, local or vm
    cold
        File or directory that is not in the page cache when the program starts, and whose disk
        is limited. A relative path is copied to the vm, as by --copy. May be given several
        times
    cache
        State of the --cold files in the page cache before each trial; any leaves them as they
        are
    ready_when
        Measure until a line of output matches this regular expression, then end the program
    ready_port
        Measure until the program listens on this TCP port, then end it
    copy
        Copy a file or directory to the host's data disk and run the program there. May be given
        several times
    writes
        The command writes to the files of --copy, or beside them: all are restored before each
        trial
    copy_program
        Copy the program with its shared libraries
    timeout
        Longest duration of a trial
    collectors
        Collectors, separated by commas: iostat, sar, vmtouch, bpftrace, blocklat,
        perf-mem, damon; or none. The sampler always records
    data_dir
        Directory on a disk of this machine for files that pagecage writes (host local)
    """

    others: Annotated[tuple[str, ...], Parameter(name="--cage", metavar="CAGE")] = ()
    no_control: bool = False
    repeats: Repeats = 1
    host: HostName = "auto"
    cold: _Path = ()
    cache: Annotated[Literal["cold", "resident", "any"], Parameter(metavar="STATE")] = "cold"
    ready_when: Annotated[str | None, Parameter(metavar="REGEX")] = None
    ready_port: Port | None = None
    copy: _Path = ()
    writes: bool = False
    copy_program: bool = False
    timeout: Seconds = _TIMEOUT_SECONDS
    collectors: Annotated[str, Parameter(metavar="NAMES")] = "none"
    data_dir: Folder | None = None
    disk: _Disks = ()
    seed: _Seed = None
    driver: _Driver = None
    enforced_by: _EnforcedBy = None
    dilate: _Dilate = None
    cold_metadata: _ColdMetadata = False
    fresh_home: _FreshHome = False
    same_output: _SameOutput = False


def check_readiness(options: ReplayOptions) -> None:
    """Raise PagecageError for an invalid --ready-when, or for --ready-port beside it."""
    if options.ready_when is not None and options.ready_port is not None:
        raise PagecageError(
            "--ready-when and --ready-port are mutually exclusive", "give one of them"
        )
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
            raise PagecageError(
                f"--collectors: there is no collector {name!r}",
                nearest(name, [*COLLECTORS, "none"]),
            )
    return names
