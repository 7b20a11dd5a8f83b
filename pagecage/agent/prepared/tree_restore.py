"""A tree made equal to its original again, after programs have written to it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pagecage.agent.prepared.file_content import Pieces, clone, copy_differing
from pagecage.agent.prepared.file_tree import (
    ROOT,
    Signature,
    TreeEntry,
    kind_of,
    read_target,
    read_xattrs,
    signature,
)


class TreeRestore:
    """One restoration of the tree `data` from `original`, whose entries are `wanted`.

    A file whose signature is that in `unchanged` is left alone. After run(), `changed` are the
    files that were restored, by path, with the pieces that were written to each; none of a file
    whose extents are shared.
    """

    def __init__(
        self,
        original: Path,
        data: Path,
        wanted: Mapping[str, TreeEntry],
        unchanged: Mapping[str, Signature],
        *,
        has_reflink: bool,
    ) -> None:
        self._original, self._data, self._wanted = original, data, wanted
        self._unchanged, self._has_reflink = unchanged, has_reflink
        self._taken: set[int] = set()
        self.changed: dict[str, Pieces] = {}

    @property
    def copied_bytes(self) -> int:
        """The bytes of all pieces that were written."""
        return sum(length for pieces in self.changed.values() for _, length in pieces)

    def run(self) -> None:
        """Remove what is too much, make what is missing, and write what differs."""
        if self._data.is_symlink() or not self._data.is_dir():
            _remove(self._data)
            self._data.mkdir()
        self._remove_strangers(ROOT)
        for entry in self._wanted.values():
            self._make(entry)
        for entry in reversed(list(self._wanted.values())):
            if entry.kind == "directory":  # after its entries, which change its mtime
                _set_metadata(self._data / entry.path, entry)

    def _remove_strangers(self, folder: str) -> None:
        """Remove the paths below a directory that the original has not, or not of this kind.

        A file with more or fewer links than it should have is made anew.
        """
        _make_writable(self._data / folder, stat.S_IRWXU)
        for name in [one.name for one in (self._data / folder).iterdir()]:
            path = name if folder == ROOT else f"{folder}/{name}"
            status, wanted = (self._data / path).lstat(), self._wanted.get(path)
            is_known = wanted is not None and kind_of(status) == wanted.kind
            if wanted is not None and wanted.kind == "file":
                is_known = is_known and status.st_nlink == wanted.links
            if not is_known:
                _remove(self._data / path)
            elif stat.S_ISDIR(status.st_mode):
                self._remove_strangers(path)

    def _make(self, entry: TreeEntry) -> None:
        path = self._data / entry.path
        if entry.kind == "file":
            self._make_file(entry, path)
            return
        if entry.kind == "directory":
            with suppress(FileExistsError):
                path.mkdir(0o700)
            return
        if entry.kind == "symlink" and entry.target is not None:
            if not os.path.lexists(path) or read_target(path) != entry.target:
                _remove(path)
                path.symlink_to(entry.target)
        elif not os.path.lexists(path):
            os.mkfifo(path)
        _set_metadata(path, entry)

    def _make_file(self, entry: TreeEntry, path: Path) -> None:
        if entry.link_to is not None:
            leader = self._data / entry.link_to
            if not os.path.lexists(path) or not leader.samefile(path):
                _remove(path)
                path.hardlink_to(leader)
            return
        status = path.lstat() if os.path.lexists(path) else None
        if status and status.st_ino in self._taken:  # linked to a file that has its place already
            path.unlink()
            status = None
        if status is None or signature(status) != self._unchanged.get(entry.path):
            self._write(entry, path)
        self._taken.add(path.lstat().st_ino)

    def _write(self, entry: TreeEntry, path: Path) -> None:
        if os.path.lexists(path):
            _make_writable(path, stat.S_IRUSR | stat.S_IWUSR)
        source = os.open(self._original / entry.path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            target = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                is_shared = self._has_reflink and clone(source, target)
                self.changed[entry.path] = [] if is_shared else copy_differing(source, target)
            finally:
                os.close(target)
        finally:
            os.close(source)
        _set_metadata(path, entry)


def _make_writable(path: Path, bits: int) -> None:
    """Give the owner these permissions if this user has them not; root needs none."""
    wanted = (os.R_OK if bits & stat.S_IRUSR else 0) | (os.W_OK if bits & stat.S_IWUSR else 0)
    if not os.access(path, wanted | (os.X_OK if bits & stat.S_IXUSR else 0)):
        path.chmod(stat.S_IMODE(path.lstat().st_mode) | bits)


def _remove(path: Path) -> None:
    """Remove a file, a link or a tree, whatever is there."""
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    _make_writable(path, stat.S_IRWXU)
    for folder, names, _ in os.walk(path):  # top-down: opens a directory after its parent's turn
        for name in names:
            if not (found := Path(folder, name)).is_symlink():
                _make_writable(found, stat.S_IRWXU)
    shutil.rmtree(path)


def _set_metadata(path: Path, entry: TreeEntry) -> None:
    """Set owner, mode, extended attributes and mtime where they differ, in this order.

    A change of owner clears bits of the mode and the capabilities of a file (chown(2)).
    """
    status = path.lstat()
    if (status.st_uid, status.st_gid) != (entry.uid, entry.gid):
        os.chown(path, entry.uid, entry.gid, follow_symlinks=False)
        status = path.lstat()
    if entry.kind != "symlink":
        if (found := read_xattrs(path)) != entry.xattrs:
            _set_xattrs(path, found, entry.xattrs)
            status = path.lstat()  # an ACL changes the mode
        if stat.S_IMODE(status.st_mode) != entry.mode:
            path.chmod(entry.mode)
    if status.st_mtime_ns != entry.mtime_ns:
        os.utime(path, ns=(status.st_atime_ns, entry.mtime_ns), follow_symlinks=False)


def _set_xattrs(path: Path, found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    for name in found.keys() - wanted.keys():
        os.removexattr(path, name)
    for name, value in wanted.items():
        if found.get(name) != value:
            os.setxattr(path, name, bytes.fromhex(value))
