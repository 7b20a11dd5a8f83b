"""Unpacking of a bundle into a run folder. Bundles are untrusted: everything in them is checked.

Only data are unpacked. A bundle's own report is left out, because whoever made the bundle wrote it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pagecage.bundle.pack import BUNDLE_VERSION, MANIFEST, REPORT, REQUIRED, Manifest, is_allowed
from pagecage.errors import PagecageError
from pagecage.model.json_codec import JsonView
from pagecage.model.run_files import read_plan
from pagecage.units import GIB, MIB, format_bytes

_MOST_BYTES = 64 * GIB
_MOST_MANIFEST_BYTES = 16 * MIB
_MOST_FILES = 100_000
_MOST_RATIO = 200
"""Unpacked bytes per packed byte: a run's traces reach 30, an archive made to fill a disk 1000."""
_CHUNK = MIB
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""Exceptions that zipfile raises for a truncated, changed, encrypted or unsupported archive."""
_AGAIN = "obtain the bundle again"


def unpack(bundle: Path, folder: Path) -> Manifest:
    """Write the bundle's files to the new or empty directory `folder`; return the manifest.

    Raises PagecageError for an invalid bundle; files that were written before it stay.
    """
    try:
        with zipfile.ZipFile(bundle) as archive:
            manifest = _manifest(archive, bundle)
            _check_entries(archive, manifest, bundle)
            # The sizes are those of the manifest, which `_extract` enforces. Those that the
            # archive itself declares may be anything, and its entries may overlap.
            size = sum(file["bytes"] for file in manifest["files"])
            packed = bundle.stat().st_size
            if size > _MOST_RATIO * packed + MIB:
                times = f"{size // packed} times its size"
                raise PagecageError(f"{bundle} unpacks to {times}, which no run does", _AGAIN)
            if size > min(shutil.disk_usage(folder.parent).free, _MOST_BYTES):
                reason = f"{bundle} unpacks to {format_bytes(size)}, which do not fit here"
                raise PagecageError(reason, "give another --out")
            folder.mkdir(exist_ok=True)
            for file in manifest["files"]:
                if file["path"] != REPORT:
                    _extract(archive, file, folder, bundle)
    except OSError as error:
        reason = f"{bundle} cannot be read: {error.strerror or error}"
        raise PagecageError(reason, "give another file") from None
    except _DAMAGED as error:
        raise PagecageError(f"{bundle} is damaged or not a bundle: {error}", _AGAIN) from None
    try:
        plan = read_plan(folder)
    except PagecageError as error:
        message = error.message.replace(f"{folder}/", "")
        raise PagecageError(f"{bundle}: {message}", _AGAIN) from None
    if plan["run_id"] != manifest["run_id"]:
        raise PagecageError(f"{bundle}: its {MANIFEST} is that of another run", _AGAIN)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


@contextmanager
def unpacked(bundle: Path, name: str = "run") -> Iterator[tuple[Path, Manifest]]:
    """Unpack a bundle to a folder of this name in a temporary one, which ends with the context.

    Errors raised within the context name the bundle, not the folder.
    """
    with TemporaryDirectory(prefix="pagecage-bundle-") as scratch:
        folder = Path(scratch, name)
        try:
            yield folder, unpack(bundle, folder)
        except PagecageError as error:
            message, hint = (
                text.replace(str(folder), str(bundle)) for text in (error.message, error.hint)
            )
            raise PagecageError(message, hint, error.exit_code) from None


def _manifest(archive: zipfile.ZipFile, bundle: Path) -> Manifest:
    if MANIFEST not in archive.namelist():
        reason = f"{bundle} is not a bundle: it has no {MANIFEST}"
        raise PagecageError(reason, "make one: pagecage export RUN")
    with archive.open(MANIFEST) as file:
        text = file.read(_MOST_MANIFEST_BYTES + 1)
    if len(text) > _MOST_MANIFEST_BYTES:
        raise PagecageError(f"{bundle}: its {MANIFEST} is too large", _AGAIN)
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        raise PagecageError(f"{bundle}: its {MANIFEST} is not JSON", _AGAIN) from None
    version = manifest.get("bundle_version") if isinstance(manifest, dict) else None
    if isinstance(version, int) and version > BUNDLE_VERSION:
        reason = f"{bundle} has bundle version {version}"
        raise PagecageError(reason, "use a newer pagecage to read it")
    is_known = version == BUNDLE_VERSION and isinstance(manifest.get("run_id"), str)
    files = manifest.get("files") if is_known else None
    kinds = {"path": str, "bytes": int, "sha256": str}
    if not (isinstance(files, list) and len(files) <= _MOST_FILES) or not all(
        isinstance(file, dict)
        and all(isinstance(file.get(key), kind) for key, kind in kinds.items())
        and file["bytes"] >= 0
        for file in files
    ):
        raise PagecageError(f"{bundle}: its {MANIFEST} lacks required keys", "see docs/FORMAT.md")
    return dict(manifest)


def _check_entries(archive: zipfile.ZipFile, manifest: Manifest, bundle: Path) -> None:
    """Raise PagecageError unless the archive has exactly the listed files, all of them regular."""
    listed = [file["path"] for file in manifest["files"]]
    for path in listed:
        if not is_allowed(path):
            raise PagecageError(f"{bundle} contains {path!r}, which is not a file of a run", _AGAIN)
    for entry in archive.infolist():
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            reason = f"{bundle} contains {entry.filename!r}, which is not a regular file"
            raise PagecageError(reason, _AGAIN)
    if sorted(archive.namelist()) != sorted([MANIFEST, *listed]):
        raise PagecageError(f"{bundle} contains other files than its {MANIFEST} lists", _AGAIN)
    if missing := [name for name in REQUIRED if name not in listed]:
        raise PagecageError(f"{bundle} lacks {missing[0]}", _AGAIN)


def _extract(archive: zipfile.ZipFile, file: JsonView, folder: Path, bundle: Path) -> None:
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
        raise PagecageError(f"{bundle}: {file['path']} does not match its hash", _AGAIN)
