"""A bundle turned back into a run's folder. It may come from anybody: nothing in it is believed unchecked."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagecage.bundle.layout import BUNDLE_VERSION, MANIFEST, REQUIRED, is_allowed
from pagecage.errors import PagecageError
from pagecage.units import GIB, MIB, format_bytes

_MOST_BYTES = 64 * GIB
_MOST_MANIFEST_BYTES = 64 * MIB
_CHUNK = MIB
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What zipfile raises for an archive that was cut off, changed, encrypted, or packed in a way it does not know."""
_AGAIN = "ask for the bundle again"


def unpack(bundle: Path, folder: Path) -> Mapping[str, Any]:
    """Write the bundle's files into `folder`, which is made; gives its manifest. Raises PagecageError for a bad bundle.

    What was written before a fault was found stays in `folder`, for the caller to remove.
    """
    try:
        with zipfile.ZipFile(bundle) as archive:
            manifest = _manifest(archive, bundle)
            _check_entries(archive, manifest, bundle)
            _check_room(manifest, folder.parent, bundle)
            folder.mkdir()
            for file in manifest["files"]:
                _extract(archive, file, folder, bundle)
    except OSError as error:
        raise PagecageError(f"{bundle} cannot be read: {error.strerror or error}", "name another file") from None
    except _DAMAGED as error:
        raise PagecageError(f"{bundle} is no whole bundle: {error}", _AGAIN) from None
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def _manifest(archive: zipfile.ZipFile, bundle: Path) -> Mapping[str, Any]:
    """bundle.json, of a version that is understood."""
    if MANIFEST not in archive.namelist():
        raise PagecageError(f"{bundle} is no bundle: it has no {MANIFEST}", "pagecage bundle RUN makes one")
    if archive.getinfo(MANIFEST).file_size > _MOST_MANIFEST_BYTES:
        raise PagecageError(f"{bundle}: its {MANIFEST} is too large to be one", _AGAIN)
    try:
        manifest = json.loads(archive.read(MANIFEST))
    except (ValueError, RecursionError):
        raise PagecageError(f"{bundle}: its {MANIFEST} is no JSON", _AGAIN) from None
    version = manifest.get("bundle_version") if isinstance(manifest, dict) else None
    if isinstance(version, int) and version > BUNDLE_VERSION:
        raise PagecageError(f"{bundle} has bundle version {version}", "use a newer pagecage to read it")
    if version != BUNDLE_VERSION or not _are_files(manifest.get("files")) or not isinstance(manifest["run_id"], str):
        raise PagecageError(f"{bundle}: its {MANIFEST} is none of a bundle", "docs/FORMAT.md lists the keys")
    return dict(manifest)


def _are_files(files: Any) -> bool:
    keys = {"path": str, "bytes": int, "sha256": str}
    return isinstance(files, list) and all(
        isinstance(file, dict) and all(isinstance(file.get(key), kind) for key, kind in keys.items()) for file in files
    )


def _check_entries(archive: zipfile.ZipFile, manifest: Mapping[str, Any], bundle: Path) -> None:
    """Exactly the files that the manifest lists, each once, each a plain file in a place that a run has."""
    listed = [file["path"] for file in manifest["files"]]
    for path in listed:
        if not is_allowed(path):
            raise PagecageError(f"{bundle} holds {path!r}, which is no file of a run", _AGAIN)
    for entry in archive.infolist():
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise PagecageError(f"{bundle} holds {entry.filename!r}, which is no plain file", _AGAIN)
    if sorted(archive.namelist()) != sorted([MANIFEST, *listed]):
        raise PagecageError(f"{bundle} holds other files than its {MANIFEST} lists", _AGAIN)
    if lacking := [name for name in REQUIRED if name not in listed]:
        raise PagecageError(f"{bundle} lacks {lacking[0]}", _AGAIN)


def _check_room(manifest: Mapping[str, Any], folder: Path, bundle: Path) -> None:
    size = sum(file["bytes"] for file in manifest["files"])
    free = shutil.disk_usage(folder).free
    if size > min(free, _MOST_BYTES):
        raise PagecageError(f"{bundle} unpacks to {format_bytes(size)}, which do not fit here", "name another --out")


def _extract(archive: zipfile.ZipFile, file: Mapping[str, Any], folder: Path, bundle: Path) -> None:
    """One file, not a byte longer than the manifest says, and the very bytes that were packed."""
    target, digest, left = folder / file["path"], hashlib.sha256(), file["bytes"]
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(file["path"]) as source, target.open("xb") as out:
        while chunk := source.read(min(_CHUNK, left + 1)):
            left -= len(chunk)
            if left < 0:
                break
            digest.update(chunk)
            out.write(chunk)
    if left or digest.hexdigest() != file["sha256"]:
        raise PagecageError(f"{bundle}: {file['path']} is not what was packed", _AGAIN)
