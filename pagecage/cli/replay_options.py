"""Options of `pagecage replay`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from pagecage.cli.disk_options import Disks
from pagecage.cli.numbers import Port, Repeats, Seconds, Seed
from pagecage.cli.paths import Folder
from pagecage.cli.run_options import Dilate, Driver, EnforcedBy, HostName
from pagecage.errors import PagecageError, nearest
from pagecage.model.trial import COLLECTORS

_TIMEOUT_SECONDS = 3600.0
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
    disk
        Directory on another disk for a disk that a cage names, such as wal=/mnt/other (host
        local). May be given several times
    seed
        Seed of the order of trials; by default chosen at random and recorded
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
    disk: Disks = ()
    seed: Seed | None = None
    driver: Driver | None = None
    enforced_by: EnforcedBy | None = None
    dilate: Dilate = None
    cold_metadata: bool = False
    fresh_home: bool = False
    same_output: bool = False


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
