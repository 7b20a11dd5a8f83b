"""The options of `run` and `plan`, and what else every verb needs at its start; light to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cyclopts import Parameter

from pagecage.checkout import TOP
from pagecage.cli.numbers import Bound, Repeats, Seed
from pagecage.cli.paths import Folder
from pagecage.definitions.reader import known_programs
from pagecage.model.trial import DriverName

if TYPE_CHECKING:  # pydantic, which reads definitions, takes longer to import than most verbs take
    from pagecage.definitions.reader import Definitions

PROGRAMS = known_programs(TOP)
HOSTS = ("auto", "local", "vm")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What the user may choose for a run.

    Parameters
    ----------
    host
        auto, local, vm, or a group of the inventories in ansible/inventory.
    size
        auto, full, default, emulated or smoke.
    cage
        Replaces the experiment's caged levels; the uncaged control stays.
    repeats
        How often each treatment is run.
    until_ci
        Repeat until every treatment's 95 % interval is within this share of its median, as 5%.
    max_repeats
        The most repeats with --until-ci (30 unless told).
    seed
        Of the order within blocks; chosen and written down when not given.
    fresh
        How often the host starts from its saved state.
    data_dir
        Directory on the disk to be measured (host local).
    driver
        What runs the workload in its cage (docs/CONTAINERS.md).
    """

    host: str = "auto"
    size: str = "auto"
    cage: str | None = None
    repeats: Repeats | None = None
    until_ci: str | None = None
    max_repeats: Bound | None = None
    seed: Seed | None = None
    fresh: Literal["never", "run", "block", "trial"] | None = None
    data_dir: Folder | None = None
    driver: DriverName | None = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """What the user may choose for a run on a group of hosts.

    Parameters
    ----------
    fleet
        replicate: the whole plan on every host. spread: its repeats dealt over hosts that are alike.
    skip_unreachable
        Leave out the hosts that do not answer, instead of starting nothing.
    mixed
        Spread even over hosts of different kernels, processors or disks.
    """

    fleet: Literal["replicate", "spread"] = "replicate"
    skip_unreachable: bool = False
    mixed: bool = False


def definitions() -> Definitions:
    """This checkout's experiments and cages."""
    from pagecage.definitions.reader import Definitions

    return Definitions(TOP, PROGRAMS)


def is_group(host: str) -> bool:
    """Whether a HOST is none of those that pagecage has by itself."""
    return host not in HOSTS
