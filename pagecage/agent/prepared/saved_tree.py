"""A saved tree: an original that no program touches, its entries, and the tree that programs use.

BASE/original       the tree as it was made; the same as `data` if nothing writes to it
BASE/manifest.json  its entries; written last, so that a tree without it is not whole
BASE/data           the tree that programs use
BASE/state.json     the signatures of `data` when it was last equal to the original
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.data_files import require_room
from pagecage.agent.prepared.file_content import (
    Pieces,
    is_on_disk,
    reflinks,
    sync_file_system,
)
from pagecage.agent.prepared.file_tree import (
    Signature,
    TreeEntry,
    difference,
    entries_from_json,
    entries_to_json,
    scan,
    signatures,
    total_bytes,
    with_digests,
)
from pagecage.agent.prepared.tree_restore import TreeRestore
from pagecage.errors import HostError
from pagecage.model.trial_data import DATA
from pagecage.whole_files import sync_folder, write_whole

MANIFEST, STATE = "manifest.json", "state.json"
_TICK_SECONDS = 0.02  # longer than the grain of ctime, CONFIG_HZ=100


@dataclass(frozen=True)
class SavedTree:
    """The entries of an original, and its signatures when its contents were hashed.

    `sha256` is the hash of its manifest.
    """

    original: Path
    entries: Mapping[str, TreeEntry]
    signatures: Mapping[str, Signature]
    sha256: str

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return total_bytes(self.entries)


@dataclass(frozen=True)
class Restoration:
    """The work of making a tree equal to its original, by `method`: `reflink` or `copy`."""

    method: str
    changed_files: int
    copied_bytes: int
    seconds: float


def read_saved(base: Path, original: str) -> SavedTree | None:
    """Return the saved tree of a directory; None if it is missing or was not finished."""
    try:
        text = (base / MANIFEST).read_bytes()
        manifest = json.loads(text)
        entries = entries_from_json(manifest["entries"])
        found = {path: tuple(one) for path, one in manifest["signatures"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return SavedTree(base / original, entries, found, hashlib.sha256(text).hexdigest())


def save(base: Path, original: str) -> SavedTree:
    """Read the finished tree once, and write its manifest when all of it is on disk."""
    root = base / original
    sync_file_system(root)
    time.sleep(_TICK_SECONDS)  # a later write then has another ctime
    found = signatures(root)
    entries = entries_to_json(with_digests(root, scan(root)))
    manifest = {"version": 1, "entries": entries, "signatures": found}
    write_whole(base / MANIFEST, json.dumps(manifest))
    saved = read_saved(base, original)
    if saved is None:
        raise HostError(f"{base / MANIFEST} cannot be read again", f"rm -r {base}")
    return saved


def restore(saved: SavedTree, work: Path, machine: str) -> Restoration:
    """Make `work`/data equal to the original, on disk and proven, and out of the page cache.

    The original must have the signatures with which its contents were hashed. `machine` names the
    machine state: signatures of `data` from another one do not count, because a crash can lose a
    file's times and keep its content. They are removed first and written last: a restoration that
    was cut short is repeated in full. Raises HostError if the trees differ.
    """
    began, data = time.monotonic(), work / DATA
    if changed := changed_path(saved):
        raise HostError(
            f"{saved.original} was changed: {changed}", f"rm -r {saved.original.parent}"
        )
    unchanged = _read_state(work, saved, machine)
    (work / STATE).unlink(missing_ok=True)
    sync_folder(work)
    if not unchanged:
        require_room(work, max(0, saved.size_bytes - _held_bytes(data)), "a copy")
    has_reflink = reflinks(saved.original.parent, work)
    run = TreeRestore(saved.original, data, saved.entries, unchanged, has_reflink=has_reflink)
    run.run()
    sync_file_system(work)
    _prove(saved, data, run.changed)
    time.sleep(_TICK_SECONDS)  # a later write then has another ctime
    found = {"machine": machine, "manifest": saved.sha256, "signatures": signatures(data)}
    write_whole(work / STATE, json.dumps(found))
    method = "reflink" if has_reflink else "copy"
    return Restoration(method, len(run.changed), run.copied_bytes, time.monotonic() - began)


def _read_state(work: Path, saved: SavedTree, machine: str) -> dict[str, Signature]:
    """Return the signatures after the last restoration; none if they cannot be relied on."""
    try:
        state = json.loads((work / STATE).read_text())
        if (state["machine"], state["manifest"]) == (machine, saved.sha256):
            return {path: tuple(one) for path, one in state["signatures"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        pass
    return {}


def _held_bytes(data: Path) -> int:
    return total_bytes(scan(data)) if data.is_dir() else 0


def _prove(saved: SavedTree, data: Path, changed: Mapping[str, Pieces]) -> None:
    """Raise HostError unless the tree equals the original.

    Compared are the metadata of every path, and what was written, as it is on the disk. The other
    parts of changed files were found equal while they were restored.
    """
    different = difference(saved.entries, scan(data))
    for path, pieces in changed.items():
        if not different and not is_on_disk(saved.original / path, data / path, pieces):
            different = f"{path} has another content"
    if different:
        raise HostError(f"{data} is not as it was: {different}", f"rm -r {data.parent}")


def changed_path(saved: SavedTree) -> str | None:
    """Return the first path of the original that was written to, made or removed; None if none."""
    found = signatures(saved.original)
    paths = sorted(saved.signatures.keys() | found.keys())
    return next((one for one in paths if saved.signatures.get(one) != found.get(one)), None)
