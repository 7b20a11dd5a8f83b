"""The plan of a replay."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pagecage.cli.cage_options import VolumeOptions
from pagecage.cli.enforcement import enforced
from pagecage.cli.host_choice import plan_on_host
from pagecage.cli.output import Notify
from pagecage.cli.replay_cages import cage_names, replay_cages
from pagecage.cli.replay_data import (
    check_cold,
    copied_data,
    implied_copies,
    is_only_here,
    restored_base,
)
from pagecage.cli.replay_options import ReplayOptions, check_readiness, collector_names
from pagecage.cli.replay_service import ServiceOptions, server_and_load
from pagecage.cli.run_options import chosen_conditions
from pagecage.cli.run_plan import default_driver, harness
from pagecage.cli.stdio import input_is_file
from pagecage.errors import PagecageError
from pagecage.hosts.host import Host
from pagecage.model.cage import Cage
from pagecage.model.services.spec import ServiceSpec
from pagecage.model.trial import CommandSpec
from pagecage.model.trial_data import DATA, TrialData
from pagecage.planning.plan import Plan, PlanOptions, make_plan
from pagecage.planning.replay import SIZE, SIZE_REASON, ReplaySpec, make_experiment
from pagecage.runner.run_folder import new_run_id
from pagecage.runner.shared_libraries import is_elf, program_uploads
from pagecage.runner.uploads import (
    FOLDER,
    UploadedFile,
    find_uploads,
    path_on_host,
    translate_command,
    uploads_to_json,
)

_Cages = Mapping[str, Cage]


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
    loaders = service.load[:1] if service else ()

    def make(host: Host) -> Plan:
        place = _place(host, options, known)
        program, start = _program(argv[0], options, copies, place)
        files = _files((*(() if program else argv[:1]), *loaders), options, copies, place)
        uploads = files + program
        restored = copied_data(options.writes, uploads, host)
        directory = _working_directory(host, place, uploads, restored)
        _check_programs([argv[0], *loaders], host, uploads)
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
    replay = replace(replay, conditions=chosen_conditions(options))
    cages = enforced(cages, options.enforced_by, options.dilate, host, notify)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(2**32)
    plan_options = PlanOptions(
        SIZE,
        SIZE_REASON,
        options.repeats,
        seed,
        host.name,
        "never",
        default_driver=default_driver(host),
    )
    run_id = new_run_id(replay.name, host.name)
    about = {
        "carried": uploads_to_json(uploads),
        "directory": replay.command.directory,
        "restored": restored_base(replay.data, replay.command.directory),
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


def _place(host: Host, options: ReplayOptions, cages: _Cages) -> str:
    """Return `local` if the command reads its files in place, else where it reads copies.

    A simulated volume is another disk than the user's files are on, even on this machine.
    """
    by_default = options.enforced_by is None and any(cage.is_volume for cage in cages.values())
    return "volume" if by_default or options.enforced_by == "volume" else host.name


def _files(
    programs: Sequence[str], options: ReplayOptions, copies: tuple[UploadedFile, ...], place: str
) -> tuple[UploadedFile, ...]:
    """Return the files to copy: those of --copy, and cold files and programs that are only here."""
    own = [program for program in programs if is_only_here(program, copies, place)]
    implied = implied_copies(options.cold, copies, place)
    return find_uploads((*implied, *dict.fromkeys(own)), copies)


def _program(
    program: str, options: ReplayOptions, copies: tuple[UploadedFile, ...], place: str
) -> tuple[tuple[UploadedFile, ...], tuple[str, ...]]:
    """Return the files of the program to copy with its libraries, and the words that start it.

    A binary that only this machine has is copied without --copy-program.
    """
    is_own = is_only_here(program, copies, place) and is_elf(Path(program))
    return program_uploads(program) if options.copy_program or is_own else ((), (program,))


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


def _check_programs(programs: Sequence[str], host: Host, uploads: tuple[UploadedFile, ...]) -> None:
    """Raise PagecageError if a program is missing on the host; checked only for host local."""
    for program in programs if host.name == "local" and not uploads else ():
        if shutil.which(program) is None:
            raise PagecageError(f"there is no program {program!r}", "check its name and PATH")


def _working_directory(
    host: Host, place: str, uploads: tuple[UploadedFile, ...], restored: TrialData | None
) -> str:
    """Return the command's working directory.

    It is that of the copies if there are any, else the current directory, an empty one of the
    volume, or the guest's data directory.
    """
    if restored:
        return f"{restored.copied_to}/{DATA}"
    if uploads or (place == "volume" and host.name == "local"):
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
