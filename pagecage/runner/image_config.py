"""The configuration of an image: its platform, its program and its size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.errors import PagecageError
from pagecage.hosts.architecture import target_machine
from pagecage.model.container.image import DIGEST

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386", "armv7l": "arm"}
"""Names of the image specification (Go's GOARCH) by the kernel's."""


@dataclass(frozen=True)
class ImageConfig:
    """The configuration of an image (OCI image-spec, config.md).

    `image_id` is the digest of the configuration, with its algorithm.
    """

    image_id: str
    architecture: str
    os: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    layer_bytes: int


def image_config(
    image_id: str, platform_of: Mapping[str, Any], config: Mapping[str, Any], layer_bytes: int
) -> ImageConfig:
    """Return the configuration from JSON data, whose keys an engine and an archive spell alike.

    `platform_of` has the lower-case keys `architecture` and `os`. Raises ValueError if a part has
    another type.
    """
    lists = (config.get("Entrypoint") or [], config.get("Cmd") or [])
    if not all(
        isinstance(words, list) and all(isinstance(w, str) for w in words) for words in lists
    ):
        raise ValueError("Entrypoint and Cmd are not lists of words")
    return ImageConfig(
        DIGEST + image_id.removeprefix(DIGEST),
        str(platform_of.get("architecture") or ""),
        str(platform_of.get("os") or ""),
        tuple(lists[0]),
        tuple(lists[1]),
        layer_bytes,
    )


def image_program(
    config: ImageConfig, name: str, arguments: Sequence[str], entrypoint: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the words that the container runs, as an engine composes them.

    `entrypoint` replaces the image's, and with it the image's default arguments; None leaves both.
    `arguments` replace the default arguments. Raises PagecageError if nothing is left.
    """
    default = config.command if entrypoint is None else ()
    first = config.entrypoint if entrypoint is None else tuple(entrypoint)
    if words := (*first, *(tuple(arguments) or default)):
        return words
    raise PagecageError(
        f"the image {name} has no entry point and no command", "name its program: -- PROGRAM"
    )


def check_platform(config: ImageConfig, name: str, machine: str = "") -> None:
    """Raise PagecageError if the image is for another processor or operating system.

    `machine` is the kernel's name of the processor; by default the hosts'.
    """
    kernel = machine or target_machine()
    own = f"linux/{_ARCHITECTURES.get(kernel, kernel)}"
    if (found := f"{config.os}/{config.architecture}") != own:
        raise PagecageError(
            f"the image {name} is for {found}, and the host is {own}",
            f"docker pull --platform {own} {name}",
        )
