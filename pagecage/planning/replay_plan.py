"""The plan of a replay: its cages, data, service, and its program or container."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pagecage.definitions.trial_tables import wrong_metric_name
from pagecage.errors import PagecageError, no_program
from pagecage.hosts.host import AgentHost, Host
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.plan import Plan
from pagecage.model.services import MetricPattern, ServiceSpec, wrong_pattern
from pagecage.model.trial import DATA, IMAGE_DRIVERS, CommandSpec, TrialData
from pagecage.planning.cage_choice import cage_name, choose_cages
from pagecage.planning.enforcement import enforced, missing_latencies
from pagecage.planning.host_choice import plan_on_host
from pagecage.planning.options import (
    ImageOptions,
    ReplayOptions,
    ServiceOptions,
    check_readiness,
    chosen_conditions,
    collector_names,
    given_options,
)
from pagecage.planning.plan import PlanOptions, make_plan
from pagecage.planning.replay import SIZE, SIZE_REASON, ReplaySpec, make_experiment
from pagecage.planning.run_plan import chosen_seed, default_driver, harness
from pagecage.runner.images import (
    CAGE,
    ComposedContainer,
    ContainerFiles,
    ContainerSettings,
    FoundImage,
    container_files,
    env_file,
    find_image,
    image_program,
    parse_mount,
    parse_port,
    parse_variable,
    read_compose,
    variable_of,
    without_values,
)
from pagecage.runner.run_folder import new_run_id
from pagecage.runner.uploads import (
    FOLDER,
    RESTORED_FOLDER,
    UploadedFile,
    find_uploads,
    is_elf,
    path_on_host,
    program_uploads,
    size_of,
    translate_command,
    uploads_to_json,
)
from pagecage.terminal import Notify, input_is_file


def replay_cages(
    typed: Sequence[str], options: ReplayOptions, *, has_control: bool = False
) -> dict[str, Cage]:
    """Return the cages of a replay by name, the control first if there is one."""
    paths = options.cold or options.copy
    is_known = paths and all(map(os.path.lexists, paths))
    data_bytes = sum(size_of(Path(path)) for path in paths) if is_known else None
    return choose_cages([UNCAGED] * has_control + [*typed], options.volume, data_bytes)


_SYSTEM = {"bin", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr"}
"""Folders that every host has. An absolute path below them means the host's file."""


def implied_copies(
    cold: Sequence[str], uploads: Sequence[UploadedFile], place: str
) -> tuple[str, ...]:
    """Return the `--cold` paths to copy although no file of `--copy` (`uploads`) contains them.

    A path that exists on this machine means its file here, unless it is below a folder of the
    system. A command that runs in another place than `local` reads a copy of it. In the directory
    of other copies, so does a command that names it by a relative path.
    """
    if place == "local" and not uploads:
        return ()
    here = (path for path in cold if path and "\0" not in path and os.path.lexists(path))
    return tuple(
        path
        for path in here
        if (
            not Path(path).is_absolute()
            or (place != "local" and _SYSTEM.isdisjoint(Path(path).parts[1:2]))
        )
        and path_on_host(path, uploads, "") is None
    )


def is_only_here(program: str, uploads: Sequence[UploadedFile], place: str) -> bool:
    """Return whether a program is named by a relative path that another place does not have."""
    is_relative = "/" in program and not Path(program).is_absolute()
    return (
        place != "local"
        and is_relative
        and "\0" not in program
        and Path(program).is_file()
        and path_on_host(program, uploads, "") is None
    )


def copied_data(writes: bool, uploads: Sequence[UploadedFile], host: AgentHost) -> TrialData | None:
    """Return the copied files as data to restore before each trial; None without --writes."""
    if not writes:
        return None
    if not uploads:
        message = "--writes restores copies, and nothing is copied"
        raise PagecageError(message, "name the files with --copy; the command runs in their copy")
    size_bytes = sum(file.size_bytes for file in uploads)
    return TrialData(
        writes=True, size_bytes=size_bytes, copied_to=f"{host.data_dir}/{RESTORED_FOLDER}"
    )


def check_cold(
    cold: Sequence[str], host: AgentHost, uploads: Sequence[UploadedFile], notify: Notify
) -> None:
    """Raise PagecageError for a `--cold` path that no trial on this host could find."""
    for path in cold:
        if not path or "\0" in path:
            raise PagecageError(
                f"--cold: {path!r} is not a valid path", "name an existing file or directory"
            )
        is_copied = path_on_host(path, uploads, "") is not None
        if not is_copied and host.name != "local" and Path(path).is_absolute():
            notify(
                f"--cold: {path} is on the {host.name} host, so each trial checks whether it exists"
            )
            continue
        if not os.path.exists(path):  # noqa: PTH110 - Path.exists() raises for a name that is too long
            raise PagecageError(
                f"--cold: {path!r} does not exist", "name an existing file or directory"
            )
        below = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        is_filled = any(file.is_file() and not file.is_symlink() for file in below)
        if not is_filled and not Path(path).is_file():
            raise PagecageError(
                f"--cold: {path!r} contains no file", "name files, or remove --cold"
            )


_PATH = re.compile(r"(?:(?P<name>\w+)=)?(?P<path>\$[.\[].*)", re.DOTALL)
_NAMED = re.compile(r"\(\?P<(?P<name>[^>]*)>")
_WORDS = re.compile(r"(?P<name>[^=:]*)[=:]")


def server_and_load(
    options: ServiceOptions, command: Sequence[str], replayed: ReplayOptions
) -> tuple[tuple[str, ...], ServiceSpec | None]:
    """Return the command line to run, and the load if it is a server."""
    if options.serve is None:
        for given in given_options(options):
            message = f"{given} applies only to a server"
            raise PagecageError(message, "--serve 'SERVER COMMAND'")
        if not command:
            raise PagecageError(
                "there is no command to replay", "pagecage replay CAGE -- COMMAND ARGUMENTS"
            )
        check_readiness(replayed)
        return tuple(command), None
    if command:
        message = f"there is a server and a command {shlex.join(command)!r}"
        raise PagecageError(message, "give --serve or a COMMAND")
    if options.load is None:
        raise PagecageError("--serve needs the load to measure", "--load 'LOAD COMMAND'")
    if replayed.ready_when is None and replayed.ready_port is None:
        message = "--serve needs a sign that the server serves"
        raise PagecageError(message, "--ready-port PORT or --ready-when REGEX")
    argv = _split(options.serve, "--serve")
    service = ServiceSpec(
        _split(options.load, "--load"),
        _metrics(options.metric),
        options.warm_up or 0.0,
        options.settle or 0.0,
        options.ready_timeout,
        options.stop_signal,
    )
    check_readiness(replayed)
    return argv, service


def parse_metric(text: str) -> tuple[str, MetricPattern]:
    """Return the name and the pattern of `--metric`. Raises PagecageError for any other text.

    The name is that of the group, or else the words before the first `=` or `:`, or the last key of
    a path. A regular expression is never cut: what names it remains part of it.
    """
    path = _PATH.fullmatch(text)
    pattern = path["path"] if path else text
    if reason := wrong_pattern(pattern):
        raise PagecageError(f"--metric: {reason}", "--metric 'tps = ([0-9.]+)'")
    if path:
        keys: list[str] = re.findall(r"\w+", pattern)
        name = path["name"] or (keys[-1].lower() if keys else "")
    elif named := _NAMED.search(text):
        name = named["name"]
    else:
        words = _WORDS.match(text)
        name = re.sub(r"\W+", "_", words["name"]).strip("_").lower() if words else ""
    if not name:
        raise PagecageError(
            f"--metric: {text!r} has no name", "name its group, as in 'took (?P<p99_ms>[0-9.]+)'"
        )
    if reason := wrong_metric_name(name):
        raise PagecageError(f"--metric: {reason}", "name its group: (?P<name>...)")
    return name, MetricPattern(pattern)


def _metrics(texts: Sequence[str]) -> dict[str, MetricPattern]:
    metrics: dict[str, MetricPattern] = {}
    for name, pattern in map(parse_metric, texts):
        if name in metrics:
            raise PagecageError(
                f"--metric: two metrics are named {name}", "name a group: (?P<name>...)"
            )
        metrics[name] = pattern
    return metrics


def _split(text: str, option: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        message = f"{option}: {text!r} cannot be split into words: {str(error).lower()}"
        raise PagecageError(message, "close each quotation mark") from None
    if not words or "\0" in text:
        raise PagecageError(f"{option}: {text!r} is not a command", f"{option} 'PROGRAM ARGUMENTS'")
    return words


def plan_for(
    known: Mapping[str, Cage],
    argv: tuple[str, ...],
    options: ReplayOptions,
    command: str,
    notify: Notify,
    served: ServiceOptions = ServiceOptions(),  # noqa: B008 - frozen
) -> tuple[Plan, Host]:
    """Return the plan of a replay of `argv` in the cages `known`, and its host."""
    argv, service = server_and_load(served, argv, options)
    copies, loaders = find_uploads(options.copy), service.load[:1] if service else ()

    def make(host: Host) -> Plan:
        by_default = options.enforced_by is None and any(cage.is_volume for cage in known.values())
        place = "volume" if by_default or options.enforced_by == "volume" else host.name
        program, start = _program(argv[0], options, copies, place)
        files = _files((*(() if program else argv[:1]), *loaders), options, copies, place)
        restored = copied_data(options.writes, uploads := files + program, host)
        directory = _working_directory(host, place, uploads, restored)
        check_cold(options.cold, host, uploads, notify)
        _require_programs([argv[0], *loaders], host, uploads, notify)
        words = (*(word.replace("{directory}", directory) for word in start), *argv[1:])
        replay = ReplaySpec(
            argv,
            translate_command(words, files, directory),
            command_spec(options, len(known), files, directory, service),
            tuple(known),
            options.cache if options.cold else "any",
            collector_names(options.collectors),
            options.driver,
            restored,
            service and replace(service, load=translate_command(service.load, files, directory)),
            service.load if service else (),
        )
        return make_replay_plan(replay, uploads, options, host, command, known, notify)

    plan, host = plan_on_host(options, make, notify)
    for note in missing_latencies(plan):
        notify(note)
    return plan, host


def make_replay_plan(
    replay: ReplaySpec,
    uploads: tuple[UploadedFile, ...],
    options: ReplayOptions,
    host: Host,
    command: str,
    cages: Mapping[str, Cage],
    notify: Notify,
) -> Plan:
    """Return the plan of a replay on a host, with the files that are copied there."""
    replay = replace(replay, conditions=chosen_conditions(options))
    cages = enforced(cages, options, host, notify)
    plan_options = PlanOptions(
        SIZE,
        SIZE_REASON,
        options.repeats,
        chosen_seed(options.seed),
        host.name,
        "never",
        default_driver=default_driver(host),
    )
    directory, restored = replay.command.directory, replay.data and replay.data.copied_to
    about = {
        "carried": uploads_to_json(uploads),
        "directory": directory,
        # All copies are then part of the original. Of a container only the volumes are restored.
        "restored": restored
        if restored and directory and directory.startswith(f"{restored}/")
        else None,
    }
    run_id, experiment = new_run_id(replay.name, host.name), make_experiment(replay)
    return make_plan(run_id, experiment, cages, plan_options, command, harness(), about)


def _program(
    program: str, options: ReplayOptions, copies: tuple[UploadedFile, ...], place: str
) -> tuple[tuple[UploadedFile, ...], tuple[str, ...]]:
    """Return the files of the program to copy with its libraries, and the words that start it."""
    is_needed = is_only_here(program, copies, place) and is_elf(Path(program))
    return program_uploads(program) if options.copy_program or is_needed else ((), (program,))


def _files(
    programs: Sequence[str], options: ReplayOptions, copies: tuple[UploadedFile, ...], place: str
) -> tuple[UploadedFile, ...]:
    """Return the files to copy: those of --copy, and cold files and programs that are only here."""
    needed = [program for program in programs if is_only_here(program, copies, place)]
    implied = implied_copies(options.cold, copies, place)
    return find_uploads((*implied, *dict.fromkeys(needed)), copies)


def _require_programs(
    programs: Sequence[str], host: Host, uploads: tuple[UploadedFile, ...], notify: Notify
) -> None:
    for program in programs if host.name == "local" and not uploads else ():
        if shutil.which(program) is None:
            raise no_program(program)
    copied = {file.typed for file in uploads}
    of_guest = [
        program
        for program in dict.fromkeys(programs if host.name == "vm" else ())
        if program not in copied and path_on_host(program, uploads, "") is None
    ]
    if of_guest:
        user = os.environ.get("PAGECAGE_VM_USER", "root")
        other = "" if user != "root" else "; PAGECAGE_VM_USER=bench for an ordinary user"
        notify(
            f"note: {' and '.join(of_guest)} must be installed in the guest, and runs there as"
            f" {user} (--copy-program copies this machine's{other})"
        )


def _working_directory(
    host: Host, place: str, uploads: tuple[UploadedFile, ...], restored: TrialData | None
) -> str:
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


def plan_for_image(
    cages: Sequence[str],
    arguments: tuple[str, ...],
    options: ReplayOptions,
    image: ImageOptions,
    command: str,
    notify: Notify,
    *,
    has_control: bool,
) -> tuple[Plan, Host, FoundImage]:
    _check_image(options, image)
    composed = read_compose(image.compose, image.service) if image.compose else None
    settings = ContainerSettings(
        arguments=arguments,
        environment=tuple(map(parse_variable, image.env)),
        env_files=tuple(map(env_file, image.env_file)),
        mounts=tuple(map(parse_mount, image.volume)),
        ports=tuple(map(parse_port, image.publish)),
    )
    settings = composed.settings.changed_by(settings) if composed else settings
    known = _cages_of_image(cages, options, composed, settings, has_control)
    check_readiness(options)
    if composed:
        for note in (*composed.notes, *(f"limit not imported: {lost}" for lost in composed.lost)):
            notify(f"compose: {note}")
    name = image.image or (composed.image if composed else "")
    found = find_image(name, options.driver, pulls=image.pull)
    words = image_program(found.config, name, settings.arguments, settings.entrypoint)

    def make(host: Host) -> Plan:
        files = container_files(found, settings.mounts, settings.env_files, host)
        replay = _replay_of_image(found, words, settings, options, tuple(known), files, host)
        replay = replace(replay, typed=(found.name, *arguments))
        typed = without_values(command)
        return make_replay_plan(replay, files.carried, options, host, typed, known, notify)

    return *plan_on_host(replace(options, disk=()), make, notify), found


def _replay_of_image(
    found: FoundImage,
    words: tuple[str, ...],
    settings: ContainerSettings,
    options: ReplayOptions,
    names: tuple[str, ...],
    files: ContainerFiles,
    host: Host,
) -> ReplaySpec:
    spec = replace(
        files.image,
        environment=tuple(map(variable_of, settings.environment)),
        ports=settings.ports,
        directory=settings.directory,
        user=settings.user,
    )
    engine = found.engine if host.name == "local" else None
    return ReplaySpec(
        (found.name,),
        words,
        replace(command_spec(options, len(names), (), files.directory), image=spec),
        names,
        options.cache,
        collector_names(options.collectors),
        options.driver or engine or IMAGE_DRIVERS[0],
        files.volumes,
    )


def _check_image(options: ReplayOptions, image: ImageOptions) -> None:
    if image.service is not None and image.compose is None:
        raise PagecageError("--service names a service of a Compose file", "--compose FILE")
    if image.image is None and image.compose is None:
        raise PagecageError(
            "options of a container need an image", "--image NAME, or --compose FILE"
        )
    for name in ("copy", "copy_program", "cold", "writes"):
        if getattr(options, name):
            raise PagecageError(
                f"--{name.replace('_', '-')} does not apply to an image, which has its own files",
                "--volume HOST:CONTAINER mounts others; all of them are cold by default",
            )
    if options.driver is not None and options.driver not in IMAGE_DRIVERS:
        raise PagecageError(
            f"--driver {options.driver} cannot run an image", f"use {' or '.join(IMAGE_DRIVERS)}"
        )


def _cages_of_image(
    typed: Sequence[str],
    options: ReplayOptions,
    composed: ComposedContainer | None,
    settings: ContainerSettings,
    has_control: bool,
) -> dict[str, Cage]:
    """Return the cages by name; the cage `compose` has the limits of the Compose file itself."""
    if not typed and composed is None:
        raise PagecageError("pagecage replay requires CAGE", "pagecage cage list")
    names = [*([UNCAGED] if has_control else []), *dict.fromkeys(typed or (CAGE,))]
    of_file = composed.cage if composed else None
    if composed and CAGE in names and of_file is None:
        raise PagecageError(
            "the service has no limits in its Compose file", "name a cage: pagecage cage list"
        )
    data = replace(options, cold=tuple(mount.source for mount in settings.mounts))
    known = replay_cages([name for name in names if name != CAGE or of_file is None], data)
    known |= {CAGE: of_file} if of_file else {}
    keys = (name if name == CAGE else cage_name(name) for name in names)
    return {key: known[key] for key in keys}
