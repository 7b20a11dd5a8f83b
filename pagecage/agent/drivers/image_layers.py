"""The image of a replay in an engine's store: loaded once, and the directories of its layers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagecage.agent.drivers.engine import ContainerEngine
from pagecage.errors import HostError, PagecageError
from pagecage.model.container.image import DIGEST, ImageSpec
from pagecage.process import run

_LOAD_SECONDS = 3600.0
_OVERLAY = ("overlay2", "overlay")
"""Storage drivers with one directory per layer: Docker's and podman's."""


def provide_image(engine: ContainerEngine, image: ImageSpec) -> dict[str, Any]:
    """Load the image unless the engine has it. Return its entry for a record, with its layers.

    Raises HostError if the engine cannot load it, or does not tell where its layers are.
    """
    found = engine.inspect_image(image.image_id) or _load(engine, image)
    return {
        "reference": image.reference,
        "id": image.image_id,
        "architecture": image.architecture,
        "layer_bytes": image.layer_bytes,
        "user": image.user if image.user is not None else _user(found),
        "layers": [str(path) for path in layer_directories(engine.program, found)],
    }


def _user(found: Mapping[str, Any]) -> str:
    """Return the user in the image's configuration; empty for root."""
    return str((found.get("Config") or {}).get("User") or "")


def _load(engine: ContainerEngine, image: ImageSpec) -> dict[str, Any]:
    program = engine.program
    if image.archive is None:
        raise HostError(
            f"{program} has no image {image.reference}", f"{program} pull {image.reference}"
        )
    try:
        run([program, "load", "--input", image.archive], timeout_seconds=_LOAD_SECONDS)
    except PagecageError as error:
        raise HostError(
            f"{program} cannot load {image.reference}: {error.message}", f"{program} info"
        ) from None
    engine.undo.callback(engine.remove_image, image.image_id)
    os.sync()  # dirty pages cannot be dropped, and one call is faster than an fsync per file
    found = engine.inspect_image(image.image_id)
    if found is None:
        short = image.image_id.removeprefix(DIGEST)[:12]
        raise HostError(
            f"{program} has loaded {image.archive}, which does not hold the image {short}",
            "start a new run; if Docker has containerd's image store, use --driver podman",
        )
    return found


def layer_directories(program: str, found: Mapping[str, Any]) -> tuple[Path, ...]:
    """Return the directories of an image's layers, the uppermost first.

    `found` is an entry of `docker image inspect` or `podman image inspect`. Raises HostError for a
    storage driver without such directories.
    """
    graph = found.get("GraphDriver") or {}
    data = graph.get("Data") or {}
    joined = (data.get("UpperDir"), data.get("LowerDir"))
    paths = [path for text in joined if text for path in text.split(":")]
    if graph.get("Name") not in _OVERLAY or not paths:
        name = graph.get("Name") or "containerd's"
        raise HostError(
            f"{program} keeps images with the storage driver {name}, which does not tell the"
            " directories of layers",
            "use --host vm, or an engine with the storage driver overlay2",
        )
    return tuple(map(Path, paths))
