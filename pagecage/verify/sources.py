"""The limits that a target was given, from every source on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pagecage.errors import PagecageError
from pagecage.verify.clients import typed_limits
from pagecage.verify.engines import ENGINES, container_id, inspect
from pagecage.verify.kernel import KernelTrees, directories_around, group_at
from pagecage.verify.requested import (
    EXPECT_EXAMPLE,
    RequestedLimit,
    requested_of_container,
    requested_of_unit,
)
from pagecage.verify.target import Target
from pagecage.verify.units import manager_uid, requested_properties, unit_of

Found = tuple[list[RequestedLimit], list[str]]
"""Limits, and a sentence for each source that cannot be read."""


def requested_limits(
    target: Target, kernel: KernelTrees, expected: Sequence[RequestedLimit]
) -> Found:
    """Return the limits of the target's containers and units, and those that the user expects."""
    around = directories_around(target.directory, kernel)
    places = {directory: identity for directory in around if (identity := container_id(directory))}
    if target.container and not places:
        places = {target.directory: target.container.name}
    found, told = _of_containers(target, places, kernel, expected)
    more, unknown = _of_units(target, [one for one in around if one not in places], kernel)
    return [*found, *more, *expected], [*told, *unknown]


def _of_containers(
    target: Target,
    places: dict[Path, str],
    kernel: KernelTrees,
    expected: Sequence[RequestedLimit],
) -> Found:
    found: list[RequestedLimit] = []
    told: list[str] = []
    for directory, identity in places.items():
        try:
            container = target.container or inspect(identity)
            typed = typed_limits(container.name, kernel)
            group = group_at(directory, target.cgroup, kernel)
            found += requested_of_container(container, group, typed)
        except PagecageError as error:
            name = target.container.name if target.container else identity[:12]
            told.append(f"What the container {name} was given is unknown: {error.message}.")
        else:
            if not any(limit.device for limit in (*found, *expected)):
                told += _dropped(container.engine, container.name)
    return found, told


def _dropped(engine: str, name: str) -> Iterator[str]:
    """Yield the reason why an engine may not know of a limit (docs/CONTAINERS.md)."""
    if engine == "docker":
        yield (
            f"{ENGINES[engine]} knows of no I/O limit of {name}. Its command line (26.1.5) was seen"
            f" to drop them without a message: compare with what was typed, {EXPECT_EXAMPLE}."
        )


def _of_units(target: Target, directories: Sequence[Path], kernel: KernelTrees) -> Found:
    managers = {uid for uid in map(manager_uid, directories) if uid is not None}
    told = [
        f"The units of user {uid}'s own systemd were not asked; that user may ask."
        for uid in sorted(managers - {os.getuid()})
    ]
    found: list[RequestedLimit] = []
    try:
        units = [one for one in directories if unit_of(one)]
        for directory, properties in requested_properties(units).items():
            group = group_at(directory, target.cgroup, kernel)
            found += requested_of_unit(properties, group, directory.name)
    except PagecageError as error:
        told.append(f"What systemd was asked for is unknown: {error.message}.")
    return found, told
