"""The image of a replay in an engine's store: loaded once, and the directories of its layers."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from pagecage.agent.drivers.engine import ContainerEngine
from pagecage.errors import HostError
from pagecage.model.container.image import DIGEST, ImageSpec
from pagecage.process import PIPE, TimeoutExpired, spawn

_LOAD_SECONDS = 3600.0
_CONTENTS = "manifest.json"
_MOST_JSON_BYTES = 16 << 20
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
        load_archive(program, Path(image.archive), image.image_id)
    except (OSError, tarfile.TarError, ValueError, LookupError, TypeError, EOFError) as error:
        raise HostError(
            f"{program} cannot load {image.reference}: {error}", f"{program} info"
        ) from None
    engine.undo.callback(engine.remove_image, own_name(image.image_id))
    os.sync()  # dirty pages cannot be dropped, and one call is faster than an fsync per file
    found = engine.inspect_image(image.image_id)
    if found is None:
        short = image.image_id.removeprefix(DIGEST)[:12]
        raise HostError(
            f"{program} has loaded {image.archive}, which does not hold the image {short}",
            "start a new run; if Docker has containerd's image store, use --driver podman",
        )
    return found


def own_name(image_id: str) -> str:
    """Return the name under which an archive's image is loaded; no other image gets it."""
    return f"localhost/pagecage-image:{image_id.removeprefix(DIGEST)[:32]}"


def load_archive(program: str, archive: Path, image_id: str) -> None:
    """Have the engine load the image with this id under a name of pagecage's own.

    `docker load` gives an image the names in its archive, and takes them from other images. So it
    gets the configuration and the layers alone, with a list of contents that has only that name.
    Raises ValueError if the archive lacks the image, or if the engine refuses it.
    """
    with tempfile.TemporaryFile() as stderr:
        process = spawn([program, "load"], stdin=PIPE, stderr=stderr)
        assert process.stdin is not None
        try:
            with suppress(BrokenPipeError), process.stdin:
                write_renamed(archive, image_id, process.stdin)
            status = process.wait(_LOAD_SECONDS)
        except TimeoutExpired:
            raise ValueError(f"it took longer than {_LOAD_SECONDS:.0f} s") from None
        finally:
            process.kill()
            process.wait()
        stderr.seek(0)
        lines = stderr.read().decode(errors="replace").strip().splitlines()
    if status != 0:
        raise ValueError(f"{lines[-1] if lines else f'{program} load: status {status}'}")


def write_renamed(archive: Path, image_id: str, out: IO[bytes]) -> None:
    """Write an archive of the image alone, with its own name in place of the archive's names.

    The image is chosen by the digest of its configuration. Raises ValueError if it is missing, and
    what tarfile and json raise for a file that is not such an archive.
    """
    with tarfile.open(archive, "r:*") as source, tarfile.open(fileobj=out, mode="w|") as target:
        entry, config = _entry(source, image_id)
        name = f"{image_id.removeprefix(DIGEST)}.json"
        contents = [{"Config": name, "RepoTags": [own_name(image_id)], "Layers": entry["Layers"]}]
        for path, data in ((_CONTENTS, json.dumps(contents).encode()), (name, config)):
            _add(target, path, io.BytesIO(data), len(data))
        for layer in sorted(set(entry["Layers"]), key=lambda path: source.getmember(path).offset):
            file = source.extractfile(layer)  # also the target of a link within the archive
            if file is None:
                raise ValueError(f"{layer} is not a file")
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            _add(target, layer, file, size)


def _entry(source: tarfile.TarFile, image_id: str) -> tuple[Mapping[str, Any], bytes]:
    """Return the image's entry in the list of contents, and its configuration."""
    for entry in json.loads(_small(source, _CONTENTS)):
        config = _small(source, entry["Config"])
        if DIGEST + hashlib.sha256(config).hexdigest() == image_id:
            return entry, config
    raise ValueError(f"its archive does not hold the image {image_id.removeprefix(DIGEST)[:12]}")


def _small(source: tarfile.TarFile, name: str) -> bytes:
    file = source.extractfile(name)
    data = file.read(_MOST_JSON_BYTES + 1) if file else b""
    if not data or len(data) > _MOST_JSON_BYTES:
        raise ValueError(f"{name} is not a small file")
    return data


def _add(target: tarfile.TarFile, name: str, file: IO[bytes], size: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = size
    target.addfile(entry, file)


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
