"""The plan of a customer's container in a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pagecage.cli.cage_choice import cage_name
from pagecage.cli.host_choice import plan_on_host
from pagecage.cli.options import (
    ImageOptions,
    ReplayOptions,
    check_readiness,
    collector_names,
)
from pagecage.cli.output import Notify
from pagecage.cli.replay_plan import command_spec, make_replay_plan, replay_cages
from pagecage.errors import PagecageError
from pagecage.hosts.host import Host
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.trial import IMAGE_DRIVERS
from pagecage.planning.plan import Plan
from pagecage.planning.replay import ReplaySpec
from pagecage.runner.container_settings import (
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
from pagecage.runner.images import (
    ContainerFiles,
    FoundImage,
    container_files,
    find_image,
    image_program,
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
    """Return the plan of a replay of an image, its host, and the image."""
    _check(options, image)
    composed = read_compose(image.compose, image.service) if image.compose else None
    settings = _settings(image, arguments, composed)
    known = _cages(cages, options, composed, settings, has_control)
    check_readiness(options)
    if composed:
        for note in (*composed.notes, *(f"limit not imported: {lost}" for lost in composed.lost)):
            notify(f"compose: {note}")
    name = image.image or (composed.image if composed else "")
    found = find_image(name, options.driver, pulls=image.pull)
    words = image_program(found.config, name, settings.arguments, settings.entrypoint)

    def make(host: Host) -> Plan:
        files = container_files(found, settings.mounts, settings.env_files, host)
        replay = _replay(found, words, arguments, settings, options, tuple(known), files, host)
        typed = without_values(command)
        return make_replay_plan(replay, files.carried, options, host, typed, known, notify)

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
    others = [name for name in names if name != CAGE or of_file is None]
    data = replace(options, cold=tuple(mount.source for mount in settings.mounts))
    known = replay_cages(others, data)
    known |= {CAGE: of_file} if of_file else {}
    return {
        key: known[key] for key in (name if name == CAGE else cage_name(name) for name in names)
    }
