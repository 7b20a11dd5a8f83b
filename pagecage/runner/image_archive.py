"""Archives made by `docker save` or `podman save` (Docker's image tarball format)."""

from __future__ import annotations

import hashlib
import json
import shlex
import tarfile
from pathlib import Path
from typing import Any

from pagecage.errors import PagecageError, why_unreadable
from pagecage.runner.image_config import ImageConfig, image_config

_MANIFEST = "manifest.json"
_MOST_JSON_BYTES = 16 << 20
_SAVE = "docker save IMAGE -o image.tar"
_BROKEN = (tarfile.TarError, EOFError, ValueError, LookupError, TypeError, AttributeError)


def read_archive(path: Path) -> ImageConfig:
    """Return the configuration of the only image in an archive, which may be compressed.

    Raises PagecageError if the file is not such an archive, or if it has several images.
    """
    try:
        with tarfile.open(path, "r:*") as archive:
            return _read(archive, path)
    except OSError as error:  # also for damaged gzip data
        reason = error.strerror or str(error)
        raise PagecageError(
            f"{path} cannot be read: {reason}", f"ls -l {shlex.quote(str(path))}"
        ) from None
    except (*_BROKEN, RecursionError) as error:
        is_tar = not isinstance(error, tarfile.TarError)
        reason = why_unreadable(error) if is_tar else "it is not a whole tar archive"
        raise PagecageError(f"{path} is not an archive of an image: {reason}", _SAVE) from None


def _read(archive: tarfile.TarFile, path: Path) -> ImageConfig:
    if _MANIFEST not in archive.getnames():
        kind = (
            "an archive in OCI's own format" if "oci-layout" in archive.getnames() else "no image"
        )
        raise PagecageError(f"{path} has no {_MANIFEST}, so it is {kind}", _SAVE)
    manifest = json.loads(_member(archive, _MANIFEST))
    if len(manifest) != 1:
        names = ", ".join(str((one.get("RepoTags") or ["?"])[0]) for one in manifest)
        raise PagecageError(f"{path} has {len(manifest)} images: {names}", _SAVE)
    text = _member(archive, manifest[0]["Config"])
    config = json.loads(text)
    size_bytes = sum(archive.getmember(layer).size for layer in manifest[0]["Layers"])
    digest = hashlib.sha256(text).hexdigest()
    return image_config(digest, config, config.get("config") or {}, size_bytes)


def _member(archive: tarfile.TarFile, name: Any) -> bytes:
    """Return the content of a small file. Raises KeyError if it is missing."""
    file = archive.extractfile(str(name))
    if file is None:
        raise ValueError(f"{name} is not a file")
    content = file.read(_MOST_JSON_BYTES + 1)
    if len(content) > _MOST_JSON_BYTES:
        raise ValueError(f"{name} is larger than {_MOST_JSON_BYTES >> 20} MiB")
    return content
