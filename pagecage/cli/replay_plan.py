"""Options of `pagecage replay`, and its plan."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from pagecage.cli.cage_options import VolumeOptions
from pagecage.cli.disk_options import Disks
from pagecage.cli.enforcement import enforced
from pagecage.cli.host_choice import plan_on_host
from pagecage.cli.numbers import Port, Repeats, Seconds, Seed
from pagecage.cli.output import Notify
from pagecage.cli.paths import Folder
from pagecage.cli.replay_cages import cage_names, replay_cages
from pagecage.cli.replay_data import check_cold, copied_data, implied_copies
from pagecage.cli.replay_service import ServiceOptions, server_and_load
from pagecage.cli.run_options import Dilate, Driver, EnforcedBy, HostName
from pagecage.cli.run_plan import driver_without_limits, harness
from pagecage.cli.stdio import input_is_file
from pagecage.errors import PagecageError, nearest
from pagecage.hosts.host import Host
from pagecage.model.cage import Cage
from pagecage.model.services.spec import ServiceSpec
from pagecage.model.trial import COLLECTORS, CommandSpec
from pagecage.model.trial_data import TrialData
from pagecage.planning.plan import Plan, PlanOptions, make_plan
from pagecage.planning.replay import SIZE, SIZE_REASON, ReplaySpec, make_experiment
from pagecage.runner.run_folder import new_run_id
from pagecage.runner.shared_libraries import program_uploads
from pagecage.runner.uploads import (
    FOLDER,
    UploadedFile,
    find_uploads,
    path_on_host,
    translate_command,
    uploads_to_json,
)

_TIMEOUT_SECONDS = 3600.0
_Cages = Mapping[str, Cage]
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


def plan_for(
    cage: str,
    argv: tuple[str, ...],
    options: ReplayOptions,
    command: str,
    notify: Notify,
    cages: _Cages | None = None,
    volume: VolumeOptions = VolumeOptions(),  # noqa: B008 - frozen
    served: ServiceOptions = ServiceOptions(),  # noqa: B008 - frozen
) -> tuple[Plan, Host]:
    """Return the plan of a replay of `argv`, and its host; `command` is the whole command line."""
    argv, service = _checked(argv, options, served)
    names, known = chosen_cages(cage, options, cages, volume)
    copies = find_uploads(options.copy)
    program, start = program_uploads(argv[0]) if options.copy_program else ((), (argv[0],))

    def make(host: Host) -> Plan:
        files = find_uploads(implied_copies(options.cold, copies, host.name), copies)
        uploads = files + program
        restored = copied_data(options.writes, uploads, host)
        directory = _working_directory(host, uploads, restored)
        _check_programs([argv[0], *(service.load[:1] if service else ())], host, uploads)
        check_cold(options.cold, host, uploads, notify)
        words = (*(word.replace("{directory}", directory) for word in start), *argv[1:])
        replay = ReplaySpec(
            argv,
            translate_command(words, files, directory),
            command_spec(options, len(names), files, directory, service),
            names,
            options.cache if options.cold else "any",
            collector_names(options.collectors),
            options.driver,
            restored,
            *_loads(service, files, directory),
        )
        return make_replay_plan(replay, uploads, options, host, command, known, notify)

    return plan_on_host(options.host, options.data_dir, make, notify, options.disk)


def make_replay_plan(
    replay: ReplaySpec,
    uploads: tuple[UploadedFile, ...],
    options: ReplayOptions,
    host: Host,
    command: str,
    cages: _Cages,
    notify: Notify,
) -> Plan:
    """Return the plan of a replay on a host, with the files that are copied there."""
    cages = enforced(cages, options.enforced_by, options.dilate, host, notify)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    plan_options = PlanOptions(
        SIZE,
        SIZE_REASON,
        options.repeats,
        seed,
        host.name,
        "never",
        driver_without_limits=driver_without_limits(host),
    )
    run_id = new_run_id(replay.name, host.name)
    about = {
        "carried": uploads_to_json(uploads),
        "directory": replay.command.directory,
        "restored": replay.data.copied_to if replay.data else None,
    }
    return make_plan(
        run_id, make_experiment(replay), cages, plan_options, command, harness(), about
    )


def chosen_cages(
    cage: str, options: ReplayOptions, cages: _Cages | None, volume: VolumeOptions
) -> tuple[tuple[str, ...], _Cages]:
    """Return the names of the cages to run in, and all cages by name."""
    if cages:
        return tuple(cages), cages
    names = cage_names(cage, options.others, has_control=not options.no_control)
    return names, replay_cages(names, volume, options.cold or options.copy)


def _checked(
    argv: tuple[str, ...], options: ReplayOptions, served: ServiceOptions
) -> tuple[tuple[str, ...], ServiceSpec | None]:
    """Return the command line to run, and the load if it is a server. Raises PagecageError."""
    serves = options.ready_when is not None or options.ready_port is not None
    argv, service = server_and_load(served, argv, is_seen_serving=serves)
    _check(argv, options)
    return argv, service


def _check(argv: tuple[str, ...], options: ReplayOptions) -> None:
    if not argv:
        raise PagecageError(
            "there is no command to replay", "pagecage replay CAGE -- COMMAND ARGUMENTS"
        )
    check_readiness(options)


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


def _check_programs(programs: Sequence[str], host: Host, uploads: tuple[UploadedFile, ...]) -> None:
    """Raise PagecageError if a program is missing on the host; checked only for host local."""
    for program in programs if host.name == "local" and not uploads else ():
        if shutil.which(program) is None:
            raise PagecageError(f"there is no program {program!r}", "check its name and PATH")


def _working_directory(
    host: Host, uploads: tuple[UploadedFile, ...], restored: TrialData | None
) -> str:
    """Return the command's working directory.

    It is that of the copies if there are any, else the current directory or the guest's data
    directory.
    """
    if restored:
        return f"{restored.copied_to}/data"
    if uploads:
        return f"{host.data_dir}/{FOLDER}"
    return str(Path.cwd()) if host.name == "local" else host.data_dir


def command_spec(
    options: ReplayOptions,
    cages: int,
    uploads: tuple[UploadedFile, ...],
    directory: str,
    service: ServiceSpec | None = None,
) -> CommandSpec:
    """Return the settings of the command. A server has no part in the terminal's streams."""
    is_single = cages * options.repeats == 1 and service is None
    paths = (
        path_on_host(path, uploads, directory) or str(Path(directory, path))
        for path in options.cold
    )
    return CommandSpec(
        data_paths=tuple(paths),
        ready_when=options.ready_when,
        ready_port=options.ready_port,
        timeout_seconds=options.timeout,
        directory=directory,
        is_literal=True,
        streams_output=is_single,
        takes_input=service is None and (is_single or input_is_file()),
    )


def _loads(
    service: ServiceSpec | None, uploads: tuple[UploadedFile, ...], directory: str
) -> tuple[ServiceSpec | None, tuple[str, ...]]:
    """Return the service as it runs on the host, and its load's command as it was typed."""
    if service is None:
        return None, ()
    load = translate_command(service.load, uploads, directory)
    return replace(service, load=load), service.load


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
