"""The plan of a replay: its cages, data, service and program."""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from pagecage.checkout import TOP
from pagecage.cli.cage_page import named_profile
from pagecage.cli.enforcement import enforced
from pagecage.cli.host_choice import plan_on_host
from pagecage.cli.options import (
    ReplayOptions,
    VolumeOptions,
    catalogue_names,
    check_readiness,
    chosen_conditions,
    collector_names,
    definitions,
)
from pagecage.cli.output import Notify, input_is_file
from pagecage.cli.run_plan import default_driver, harness
from pagecage.cloud.catalogue import read_offers
from pagecage.cloud.profile import cage_of
from pagecage.definitions.trial_tables import wrong_metric_name
from pagecage.errors import PagecageError, nearest
from pagecage.hosts.host import AgentHost, Host
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.services import MetricPattern, ServiceSpec, wrong_pattern
from pagecage.model.trial import DATA, CommandSpec, TrialData
from pagecage.planning.plan import Plan, PlanOptions, make_plan
from pagecage.planning.replay import SIZE, SIZE_REASON, ReplaySpec, make_experiment
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
from pagecage.units import parse_seconds


def cage_names(cage: str, others: Sequence[str], *, has_control: bool) -> tuple[str, ...]:
    """Return each cage once, the control first. Raises PagecageError for an unknown name."""
    defined = definitions().cage_names()
    for name in (cage, *others):
        if name not in defined and name.lower() not in (volumes := _volume_names()):
            raise PagecageError(f"there is no cage {name!r}", nearest(name, [*defined, *volumes]))
    control = (UNCAGED,) if has_control else ()
    return tuple(dict.fromkeys((*control, cage, *others)))


def replay_cages(
    names: Sequence[str], volume: VolumeOptions, paths: Sequence[str]
) -> dict[str, Cage]:
    """Return the cages of these names, and the control, by name.

    `volume` are the options of the volumes among them, and `paths` the data of the program. Raises
    PagecageError if there is a volume without the options that it needs, or options without a
    volume.
    """
    defined = definitions().cage_names()
    if volume != VolumeOptions() and all(name in defined for name in names):
        raise PagecageError(
            "options of a volume do not apply to a cage of cgroups/", "pagecage cage list"
        )
    dataset_bytes = data_bytes(paths)
    return {
        name: definitions().cage(name, dataset_bytes) if name in defined else _of(name, volume)
        for name in {*names, UNCAGED}
    }


def _of(name: str, volume: VolumeOptions) -> Cage:
    profile, description = named_profile(read_offers(TOP / "cgroups/catalogue"), name, volume)
    return cage_of(profile, name.lower(), description)


def _volume_names() -> list[str]:
    return list(catalogue_names(read_offers(TOP / "cgroups/catalogue")))


def data_bytes(paths: Sequence[str]) -> int | None:
    """Return the size of the data, for cages that limit memory to a share of it.

    None if no data is named or some of it is not on this machine.
    """
    files = [Path(path) for path in paths]
    existing = [path for path in files if os.path.lexists(path)]
    return sum(map(size_of, existing)) if existing and len(existing) == len(files) else None


def implied_copies(
    cold: Sequence[str], uploads: Sequence[UploadedFile], place: str
) -> tuple[str, ...]:
    """Return the `--cold` paths to copy although no file of `--copy` (`uploads`) contains them.

    A relative path means a file on this machine. A command that runs in another place than
    `local`, or in the directory of the copies, reads a copy.
    """
    if place == "local" and not uploads:
        return ()
    relative = (path for path in cold if path and "\0" not in path and not Path(path).is_absolute())
    return tuple(
        path
        for path in relative
        if os.path.lexists(path) and path_on_host(path, uploads, "") is None
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
    """Return the copied files as data that are restored before each trial; None without --writes.

    Raises PagecageError if nothing is copied: files in place are never written by pagecage.
    """
    if not writes:
        return None
    if not uploads:
        raise PagecageError(
            "--writes restores copies, and nothing is copied",
            "name the files with --copy; the command runs in their copy",
        )
    size_bytes = sum(file.size_bytes for file in uploads)
    return TrialData(
        writes=True, size_bytes=size_bytes, copied_to=f"{host.data_dir}/{RESTORED_FOLDER}"
    )


def restored_base(data: TrialData | None, directory: str | None) -> str | None:
    """Return the base of the restored copies if the command runs in them, else None.

    All copies are then part of the original. Of a container only the volumes are restored.
    """
    base = data.copied_to if data else None
    return base if base and directory and directory.startswith(f"{base}/") else None


def check_cold(
    cold: Sequence[str], host: AgentHost, uploads: Sequence[UploadedFile], notify: Notify
) -> None:
    """Raise PagecageError for a `--cold` path that no trial on this host could find.

    Copied files, and all files on host local, must exist now. A relative path is relative to the
    command's working directory. An absolute path in a guest is checked by the trial.
    """
    for path in cold:
        if not path or "\0" in path:
            raise PagecageError(
                f"--cold: {path!r} is not a valid path", "name an existing file or directory"
            )
        is_copied = path_on_host(path, uploads, "") is not None
        if is_copied or host.name == "local" or not Path(path).is_absolute():
            _require_file(path)
        else:
            notify(
                f"--cold: {path} is on the {host.name} host, so each trial checks whether it exists"
            )


def _require_file(path: str) -> None:
    if not os.path.exists(path):  # noqa: PTH110 - Path.exists() raises for a name that is too long
        raise PagecageError(
            f"--cold: {path!r} does not exist", "name an existing file or directory"
        )
    below = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    if not (
        Path(path).is_file() or any(file.is_file() and not file.is_symlink() for file in below)
    ):
        raise PagecageError(f"--cold: {path!r} contains no file", "name files, or remove --cold")


_PATH = re.compile(r"(?:(?P<name>\w+)=)?(?P<path>\$[.\[].*)", re.DOTALL)
_NAMED = re.compile(r"\(\?P<(?P<name>[^>]*)>")
_WORDS = re.compile(r"(?P<name>[^=:]*)[=:]")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Options of a replay of a server under load.

    Parameters
    ----------
    serve
        Server to run in the cage instead of a COMMAND; it must serve by --ready-port or
        --ready-when
    load
        Command that drives the server from outside the cage; the time from its start to its
        exit is measured
    warm_up
        Run the load for this time first, for example 10s
    settle
        Pause between the warm-up and the measured load
    metric
        Figure in the load's standard output: a regular expression with one group, named by the
        words before its first = or :, or by (?P<name>...); or name=$.json.path. May be given
        several times; the first is the main figure
    ready_timeout
        The server must serve within this time
    stop_signal
        Signal that ends the server
    """

    serve: Annotated[str | None, Parameter(metavar="COMMAND")] = None
    load: Annotated[str | None, Parameter(metavar="COMMAND")] = None
    warm_up: Annotated[str | None, Parameter(metavar="TIME")] = None
    settle: Annotated[str | None, Parameter(metavar="TIME")] = None
    metric: Annotated[
        tuple[str, ...], Parameter(metavar="PATTERN", consume_multiple=False, negative=())
    ] = ()
    ready_timeout: Annotated[str | None, Parameter(metavar="TIME")] = None
    stop_signal: Literal["TERM", "INT", "QUIT", "HUP", "KILL"] = "TERM"


def server_and_load(
    options: ServiceOptions, command: Sequence[str], *, is_seen_serving: bool
) -> tuple[tuple[str, ...], ServiceSpec | None]:
    """Return the command line to run, and the load if it is a server.

    Raises PagecageError for a server beside a command, without a load, or without a sign that it
    serves, and for an option that is wrong.
    """
    if options.serve is None:
        if given := [name for name, value in vars(options).items() if _is_given(name, value)]:
            message = f"--{given[0].replace('_', '-')} applies only to a server"
            raise PagecageError(message, "--serve 'SERVER COMMAND'")
        return tuple(command), None
    if command:
        message = f"there is a server and a command {shlex.join(command)!r}"
        raise PagecageError(message, "give --serve or a COMMAND")
    if options.load is None:
        raise PagecageError("--serve needs the load to measure", "--load 'LOAD COMMAND'")
    if not is_seen_serving:
        message = "--serve needs a sign that the server serves"
        raise PagecageError(message, "--ready-port PORT or --ready-when REGEX")
    return _split(options.serve, "--serve"), _service(options, options.load)


def refuse_service(options: ServiceOptions) -> None:
    """Raise PagecageError for any option of a server, beside an image."""
    if given := [name for name, value in vars(options).items() if _is_given(name, value)]:
        message = f"--{given[0].replace('_', '-')} and --image are mutually exclusive"
        raise PagecageError(message, "measure until the image serves: --ready-port PORT")


def _service(options: ServiceOptions, load: str) -> ServiceSpec:
    patience = options.ready_timeout
    return ServiceSpec(
        _split(load, "--load"),
        _metrics(options.metric),
        _seconds(options.warm_up, "--warm-up"),
        _seconds(options.settle, "--settle"),
        None if patience is None else parse_seconds(patience, "--ready-timeout"),
        options.stop_signal,
    )


def parse_metric(text: str) -> tuple[str, MetricPattern]:
    """Return the name and the pattern of `--metric`. Raises PagecageError for any other text.

    A regular expression is never cut: what names it remains part of it.
    """
    path = _PATH.fullmatch(text)
    pattern = path["path"] if path else text
    if reason := wrong_pattern(pattern):
        raise PagecageError(f"--metric: {reason}", "--metric 'tps = ([0-9.]+)'")
    name = path["name"] or _last_key(pattern) if path else _name_of(text)
    if not name:
        raise PagecageError(
            f"--metric: {text!r} has no name", "name its group, as in 'took (?P<p99_ms>[0-9.]+)'"
        )
    if reason := wrong_metric_name(name):
        raise PagecageError(f"--metric: {reason}", "name its group: (?P<name>...)")
    return name, MetricPattern(pattern)


def _name_of(pattern: str) -> str:
    """Return the name of the group, or else the words before the first `=` or `:`."""
    if named := _NAMED.search(pattern):
        return named["name"]
    words = _WORDS.match(pattern)
    return re.sub(r"\W+", "_", words["name"]).strip("_").lower() if words else ""


def _last_key(path: str) -> str:
    words: list[str] = re.findall(r"\w+", path)
    return words[-1].lower() if words else ""


def _metrics(texts: Sequence[str]) -> dict[str, MetricPattern]:
    metrics: dict[str, MetricPattern] = {}
    for text in texts:
        name, pattern = parse_metric(text)
        if name in metrics:
            raise PagecageError(
                f"--metric: two metrics are named {name}", "name a group: (?P<name>...)"
            )
        metrics[name] = pattern
    return metrics


def _is_given(name: str, value: object) -> bool:
    return bool(value != getattr(ServiceOptions(), name))


def _seconds(text: str | None, option: str) -> float:
    return 0.0 if text is None else parse_seconds(text, option)


def _split(text: str, option: str) -> tuple[str, ...]:
    """Return the words of a command line, as a shell would split it."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise PagecageError(
            f"{option}: {text!r} cannot be split into words: {str(error).lower()}",
            "close each quotation mark",
        ) from None
    if not words or "\0" in text:
        raise PagecageError(f"{option}: {text!r} is not a command", f"{option} 'PROGRAM ARGUMENTS'")
    return words


_Cages = Mapping[str, Cage]


def plan_for(
    cage: str,
    argv: tuple[str, ...],
    options: ReplayOptions,
    command: str,
    notify: Notify,
    cages: _Cages | None = None,
    volume: VolumeOptions = VolumeOptions(),  # noqa: B008 - frozen
    served: ServiceOptions = ServiceOptions(),
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
