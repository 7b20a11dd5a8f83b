"""Options of `run` and `plan`, and the definitions to choose from. Light to import."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from pagecage.checkout import OWN, TOP
from pagecage.cli.disk_options import Disks
from pagecage.cli.numbers import Bound, Repeats, Seed
from pagecage.cli.output import notify
from pagecage.cli.paths import Folder
from pagecage.definitions.reader import known_programs
from pagecage.model.cage import Enforcer
from pagecage.model.trial import CONDITIONS, DriverName

if TYPE_CHECKING:  # importing pydantic takes longer than most verbs
    from pagecage.definitions.reader import Definitions

PROGRAMS = known_programs(TOP)
_MOST_NAMES = 3
HOSTS = ("auto", "local", "vm")
HostName = Annotated[str, Parameter(metavar="HOST")]
SizeName = Annotated[str, Parameter(metavar="SIZE")]
Fresh = Annotated[Literal["never", "run", "block", "trial"], Parameter(metavar="WHEN")]
Driver = Annotated[DriverName, Parameter(metavar="DRIVER")]
EnforcedBy = Annotated[Enforcer, Parameter(metavar="ENFORCER")]
Dilate = Annotated[str | None, Parameter(metavar="FACTOR")]


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
    seed
        Seed of the order of trials; by default chosen at random and recorded
    fresh
        When to restore the guest's saved state: never, or before the run, each block, or each
        trial
    data_dir
        Directory on the disk to measure (host local)
    disk
        Directory on another disk for a disk that a cage names, such as wal=/mnt/other (host
        local). May be given several times
    driver
        Program that applies the cage; see docs/CONTAINERS.md
    enforced_by
        Enforcer of the cage's I/O limits: cgroup (io.max), or volume, a simulated cloud volume
        with latencies and smooth limits; see docs/CLOUD.md
    dilate
        Factor by which a simulated volume is slowed down; auto fits it to an emulated guest
    cold_metadata
        Drop directory entries and inodes from memory before each trial (root), so that cold files
        are looked up on the disk as well
    fresh_home
        Give the command an empty home directory in each trial
    same_output
        Exclude trials whose standard output differs from that of the other repeats
    """

    host: HostName = "auto"
    size: SizeName = "auto"
    budget: Annotated[str | None, Parameter(metavar="TIME")] = None
    cage: Annotated[str | None, Parameter(metavar="CAGE")] = None
    treatment: Annotated[tuple[str, ...], Parameter(metavar="FACTOR=LEVEL")] = ()
    repeats: Repeats | None = None
    until_ci: Annotated[str | None, Parameter(metavar="PERCENT")] = None
    max_repeats: Bound | None = None
    seed: Seed | None = None
    fresh: Fresh | None = None
    data_dir: Folder | None = None
    disk: Disks = ()
    driver: Driver | None = None
    enforced_by: EnforcedBy | None = None
    dilate: Dilate = None
    cold_metadata: bool = False
    fresh_home: bool = False
    same_output: bool = False


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
    for kind, names in (
        ("experiments", found.experiments.replacing()),
        ("cages", found.cages.replacing()),
    ):
        if names:
            _tell_replaced(kind, tuple(names))
    return found


@cache
def _tell_replaced(kind: str, names: tuple[str, ...]) -> None:
    """Report once that definitions of the user's project replace those of pagecage."""
    more = len(names) - _MOST_NAMES
    shown = ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    notify(f"{kind} of {OWN} that replace pagecage's own: {shown}")


def is_group(host: str) -> bool:
    """Return whether `host` names a group of an inventory instead of auto, local or vm."""
    return host not in HOSTS
