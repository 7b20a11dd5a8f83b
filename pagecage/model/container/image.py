"""A container image as the program of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

DIGEST = "sha256:"
IMAGE_DRIVERS = ("docker", "podman")
"""Drivers that can run an image. The first is the default."""


@dataclass(frozen=True)
class BindMount:
    """A file or directory of the host, `source`, at the path `target` of a container."""

    source: str
    target: str
    is_read_only: bool = False


@dataclass(frozen=True)
class Variable:
    """A variable of a container.

    Its value may be a secret. It is sent to the agent, and is None in plan.json.
    """

    name: str
    variable_value: str | None


@dataclass(frozen=True)
class ImageSpec:
    """An image and the settings of its container.

    `reference` is the user's spelling, `image_id` the digest of the image's configuration. The
    engine loads `archive`, a path on the host; None if the engine has the image already.
    `env_files` are paths on the host. `user` and `directory` replace those of the image; None
    leaves them. `ports` must be free on the host, whose network
    the container shares. `layer_bytes` is the size of all layers without compression.
    """

    reference: str
    image_id: str
    architecture: str
    layer_bytes: int
    archive: str | None = None
    environment: tuple[Variable, ...] = ()
    env_files: tuple[str, ...] = ()
    mounts: tuple[BindMount, ...] = ()
    ports: tuple[int, ...] = ()
    directory: str | None = None
    user: str | None = None


_TABLES: Mapping[str, type[Variable] | type[BindMount]] = {
    "environment": Variable,
    "mounts": BindMount,
}


def environment_names(image: ImageSpec) -> list[str]:
    """Return the names of the container's variables, without those of the image and of files."""
    return sorted({variable.name for variable in image.environment})


def image_to_json(image: ImageSpec | None) -> dict[str, Any] | None:
    """Return the image as JSON data."""
    if image is None:
        return None
    lists = {name: list(getattr(image, name)) for name in ("env_files", "ports")}
    tables = {name: [asdict(item) for item in getattr(image, name)] for name in _TABLES}
    return {**asdict(image), **lists, **tables}


def image_from_json(data: Mapping[str, Any] | None) -> ImageSpec | None:
    """Return the image of JSON data."""
    if data is None:
        return None
    lists = {name: tuple(data[name]) for name in ("env_files", "ports")}
    tables = {name: tuple(kind(**item) for item in data[name]) for name, kind in _TABLES.items()}
    return ImageSpec(**{**data, **lists, **tables})
