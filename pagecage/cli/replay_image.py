"""Replays of container images: the options, and the plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from cyclopts import Parameter

from pagecage.cli.container import (
    CAGE,
    ComposedContainer,
    ContainerSettings,
    env_file,
    parse_mount,
    parse_port,
    parse_variable,
    read_compose,
    variable_of,
    without_values,
)
from pagecage.cli.host_choice import plan_on_host
from pagecage.cli.options import ReplayOptions, VolumeOptions, check_readiness, collector_names
from pagecage.cli.output import Notify
from pagecage.cli.replay_plan import cage_names, command_spec, make_replay_plan, replay_cages
from pagecage.errors import PagecageError
from pagecage.hosts.host import Host
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.trial import IMAGE_DRIVERS
from pagecage.planning.plan import Plan
from pagecage.planning.replay import ReplaySpec
from pagecage.runner.images import (
    ContainerFiles,
    FoundImage,
    container_files,
    find_image,
    image_program,
)

_Texts = Annotated[tuple[str, ...], Parameter(negative=(), metavar="TEXT")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Options of a container image, which is replayed instead of a program of this machine.

    Parameters
    ----------
    image
        Image to run: a name in Docker or podman on this machine, or an archive by docker save
    pull
        Let the engine fetch an image that this machine lacks
    env
        Variable NAME=VALUE of the container, or NAME with its value here. The value is not
        recorded. May be given several times
    env_file
        File of variables, as for docker run. May be given several times
    volume
        HOST:CONTAINER[:ro], a file or directory of this machine in the container. May be given
        several times
    publish
        Port that the container uses on the host's network. May be given several times
    compose
        Compose file with the image and its settings; CAGE compose is what the file itself limits
    service
        Service of the Compose file
    """

    image: Annotated[str | None, Parameter(metavar="NAME")] = None
    pull: Annotated[bool, Parameter(negative=())] = False
    env: Annotated[_Texts, Parameter(name=("--env", "-e"))] = ()
    env_file: Annotated[_Texts, Parameter(metavar="FILE")] = ()
    volume: Annotated[_Texts, Parameter(name=("--volume", "-v"))] = ()
    publish: Annotated[_Texts, Parameter(name=("--publish", "-p"), metavar="PORT")] = ()
    compose: Annotated[str | None, Parameter(metavar="FILE")] = None
    service: Annotated[str | None, Parameter(metavar="NAME")] = None

    @property
    def is_given(self) -> bool:
        """True if any option of an image is given."""
        return self != ImageOptions()


def plan_for_image(
    cage: str | None,
    arguments: tuple[str, ...],
    options: ReplayOptions,
    image: ImageOptions,
    command: str,
    notify: Notify,
    volume: VolumeOptions,
) -> tuple[Plan, Host, FoundImage]:
    """Return the plan of a replay of an image, its host, and the image."""
    _check(options, image)
    composed = read_compose(image.compose, image.service) if image.compose else None
    settings = _settings(image, arguments, composed)
    names, cages = _cages(cage, options, volume, composed, settings)
    check_readiness(options)
    if composed:
        for note in (*composed.notes, *(f"limit not imported: {lost}" for lost in composed.lost)):
            notify(f"compose: {note}")
    name = image.image or (composed.image if composed else "")
    found = find_image(name, options.driver, pulls=image.pull)
    words = image_program(found.config, name, settings.arguments, settings.entrypoint)

    def make(host: Host) -> Plan:
        files = container_files(found, settings.mounts, settings.env_files, host)
        replay = _replay(found, words, arguments, settings, options, names, files, host)
        typed = without_values(command)
        return make_replay_plan(replay, files.carried, options, host, typed, cages, notify)

    return *plan_on_host(replace(options, disk=()), make, notify), found


def _replay(
    found: FoundImage,
    words: tuple[str, ...],
    arguments: tuple[str, ...],
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
        (found.name, *arguments),
        words,
        replace(command_spec(options, len(names), (), files.directory), image=spec),
        names,
        options.cache,
        collector_names(options.collectors),
        options.driver or engine or IMAGE_DRIVERS[0],
        files.volumes,
    )


def _settings(
    image: ImageOptions, arguments: tuple[str, ...], composed: ComposedContainer | None
) -> ContainerSettings:
    typed = ContainerSettings(
        arguments=arguments,
        environment=tuple(map(parse_variable, image.env)),
        env_files=tuple(map(env_file, image.env_file)),
        mounts=tuple(map(parse_mount, image.volume)),
        ports=tuple(map(parse_port, image.publish)),
    )
    return composed.settings.changed_by(typed) if composed else typed


def _check(options: ReplayOptions, image: ImageOptions) -> None:
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


def _cages(
    cage: str | None,
    options: ReplayOptions,
    volume: VolumeOptions,
    composed: ComposedContainer | None,
    settings: ContainerSettings,
) -> tuple[tuple[str, ...], dict[str, Cage]]:
    if cage is None and composed is None:
        raise PagecageError("pagecage replay requires CAGE", "pagecage cage list")
    wanted = dict.fromkeys((cage or CAGE, *options.others))
    others = [name for name in wanted if composed is None or name != CAGE]
    is_own = composed is not None and CAGE in wanted
    if is_own and composed and composed.cage is None:
        raise PagecageError(
            "the service has no limits in its Compose file", "name a cage: pagecage cage list"
        )
    control = () if options.no_control else (UNCAGED,)
    known = cage_names(others[0], others[1:], has_control=False) if others else ()
    paths = [mount.source for mount in settings.mounts]
    cages = replay_cages(known, volume, paths)
    if is_own and composed and composed.cage is not None:
        cages[CAGE] = composed.cage
    return (*control, *wanted), cages
