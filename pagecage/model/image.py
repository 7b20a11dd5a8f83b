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
class ImageSpec:
    """An image and the settings of its container.

    `reference` is the user's spelling, `image_id` the digest of the image's configuration. The
    engine loads `archive`, a path on the host; None if the engine has the image already.
    `environment` has entries NAME=VALUE, `env_files` are paths on the host. `user` and `directory`
    replace those of the image; None leaves them. `ports` must be free on the host, whose network
    the container shares. `layer_bytes` is the size of all layers without compression.
    """

    reference: str
    image_id: str
    architecture: str
    layer_bytes: int
    archive: str | None = None
    environment: tuple[str, ...] = ()
    env_files: tuple[str, ...] = ()
    mounts: tuple[BindMount, ...] = ()
    ports: tuple[int, ...] = ()
    directory: str | None = None
    user: str | None = None


def environment_names(image: ImageSpec) -> list[str]:
    """Return the names of the container's variables, without those of the image and of files."""
    return sorted({entry.partition("=")[0] for entry in image.environment})


def image_to_json(image: ImageSpec | None) -> dict[str, Any] | None:
    """Return the image as JSON data."""
    if image is None:
        return None
    lists = {name: list(getattr(image, name)) for name in ("environment", "env_files", "ports")}
    return {**asdict(image), **lists, "mounts": [asdict(mount) for mount in image.mounts]}


def image_from_json(data: Mapping[str, Any] | None) -> ImageSpec | None:
    """Return the image of JSON data."""
    if data is None:
        return None
    tuples = {name: tuple(data[name]) for name in ("environment", "env_files", "ports")}
    mounts = tuple(BindMount(**mount) for mount in data["mounts"])
    return ImageSpec(**{**data, **tuples, "mounts": mounts})
