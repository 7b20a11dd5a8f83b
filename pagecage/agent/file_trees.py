"""Trees of files: their content by pieces, their manifest, and their restoration."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

_FICLONE = 0x40049409  # ioctl_ficlone(2)
_NO_REFLINK = {
    *(errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV),
    *(errno.EINVAL, errno.ENOSYS, errno.EPERM),
}
_PUNCH_HOLE, _ZERO_RANGE = 0x02 | 0x01, 0x10 | 0x01  # both with FALLOC_FL_KEEP_SIZE, fallocate(2)
_PIECE_BYTES = 256 * 1024
_SECTOR_BYTES = 512  # the unit of st_blocks, stat(2)
_DIGEST_BYTES = 16
_HASH = partial(hashlib.blake2b, digest_size=_DIGEST_BYTES)
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def reflinks(source: Path, target: Path) -> bool:
    """Return whether files in directory `target` can share extents with files in `source`."""
    probes = [folder / f".pagecage-{os.getpid()}" for folder in (source, target)]
    try:
        probes[0].write_bytes(b"x" * 4096)
        with probes[0].open("rb") as one, probes[1].open("wb") as other:
            return _clone(one.fileno(), other.fileno())
    except OSError:  # read-only, or full: a copy reports what is wrong
        return False
    finally:
        for probe in probes:
            with suppress(OSError):
                probe.unlink()


def _clone(source: int, target: int) -> bool:
    """Share all extents with the emptied target; return False where that is not possible."""
    os.ftruncate(target, 0)
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _NO_REFLINK:
            return False
        raise
    return True


Pieces = list[tuple[int, int]]
"""Offset and length of each part of a file, in order."""


def _copy_differing(source: int, target: int) -> Pieces:
    """Write and return the pieces that differ; holes and reserved blocks become the source's."""
    status = os.fstat(source)
    os.ftruncate(target, status.st_size)
    is_reserved = status.st_blocks * _SECTOR_BYTES >= status.st_size
    written: Pieces = []
    for start, end, is_data in _ranges(source, status.st_size):
        if is_data:
            for at in range(start, end, _PIECE_BYTES):
                wanted = os.pread(source, min(_PIECE_BYTES, end - at), at)
                until = at + len(wanted)
                is_equal = os.pread(target, len(wanted), at) == wanted
                if not is_equal or _seek(target, at, os.SEEK_HOLE, until) < until:
                    _write(target, wanted, at)
                    written.append((at, min(_PIECE_BYTES, end - at)))
        elif _clear(target, start, end, is_reserved=is_reserved):
            written.append((start, end - start))
    for descriptor in (source, target):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return written


def _ranges(descriptor: int, size: int) -> Iterator[tuple[int, int, bool]]:
    at = 0
    while at < size:
        data = _seek(descriptor, at, os.SEEK_DATA, size)
        if data > at:
            yield at, data, False
        if data < size:
            at = _seek(descriptor, data, os.SEEK_HOLE, size)
            yield data, at, True
        else:
            at = size


def _seek(descriptor: int, offset: int, whence: int, size: int) -> int:
    try:
        return min(size, os.lseek(descriptor, offset, whence))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return size


def is_on_disk(source: Path, target: Path, pieces: Pieces) -> bool:
    """Return whether these pieces, written back before, equal the source's on the disk."""
    with source.open("rb") as one, target.open("rb") as other:
        descriptors = (one.fileno(), other.fileno())
        os.posix_fadvise(descriptors[1], 0, 0, os.POSIX_FADV_DONTNEED)
        found = all(
            os.pread(descriptors[0], size, at) == os.pread(descriptors[1], size, at)
            for start, length in pieces
            for at in range(start, start + length, _PIECE_BYTES)
            for size in [min(_PIECE_BYTES, start + length - at)]
        )
        for descriptor in descriptors:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return found


def _write(descriptor: int, content: bytes, offset: int) -> None:
    while content:
        count = os.pwrite(descriptor, content, offset)
        content, offset = content[count:], offset + count


def _clear(descriptor: int, start: int, end: int, *, is_reserved: bool) -> bool:
    """Make a range read as zeros without data; return whether zeros had to be written."""
    if not is_reserved and _seek(descriptor, start, os.SEEK_DATA, end) >= end:
        return False
    mode, until = _ZERO_RANGE if is_reserved else _PUNCH_HOLE, end
    status = os.fstat(descriptor)
    if end == status.st_size and not is_reserved:  # only a whole block is freed, also the last one
        until = -(-end // status.st_blksize) * status.st_blksize
    if _LIBC.fallocate(descriptor, mode, start, until - start) == 0:
        return False
    error = ctypes.get_errno()
    if error not in (errno.EOPNOTSUPP, errno.ENOSYS):
        raise OSError(error, os.strerror(error))
    for at in range(start, end, _PIECE_BYTES):
        _write(descriptor, bytes(min(_PIECE_BYTES, end - at)), at)
    return True


def sync_file_system(path: Path) -> None:
    """Write back everything that is dirty on the file system of a path (syncfs(2))."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if _LIBC.syncfs(descriptor):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(path))
    finally:
        os.close(descriptor)


ROOT = "."
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
}
_INHERITED = "security.selinux"  # a label that the policy gives to new files, not the program

_SIGNED = ("ino", "size", "mtime_ns", "ctime_ns", "mode", "uid", "gid", "nlink")
Signature = tuple[int, ...]
"""Inode, size, times of change, mode, owner and links: two equal ones mean an unchanged file."""


@dataclass(frozen=True)
class TreeEntry:
    """One path below the root of a tree, in an order in which parents come first.

    `link_to` is the first path of the same file, for the others of a group of hard links; `links`
    is the size of the group. `target` is that of a symbolic link. `digest` is the content's hash,
    None where it was not read.
    """

    path: str
    kind: str
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    size_bytes: int = 0
    links: int = 1
    link_to: str | None = None
    target: str | None = None
    xattrs: Mapping[str, str] = field(default_factory=dict)
    digest: str | None = None


def scan(root: Path) -> dict[str, TreeEntry]:
    """Return the entries of a tree by path, without digests; sockets and devices are left out."""
    first: dict[int, str] = {}
    entries: dict[str, TreeEntry] = {}
    for path, status in _walk(root, ROOT):
        kind = _kind_of(status)
        if kind is None:
            continue
        is_group = kind == "file" and status.st_nlink > 1
        leader = first.setdefault(status.st_ino, path) if is_group else path
        whole, is_link = root / path, kind == "symlink"
        entries[path] = TreeEntry(
            path=path,
            kind=kind,
            mode=stat.S_IMODE(status.st_mode),
            uid=status.st_uid,
            gid=status.st_gid,
            mtime_ns=status.st_mtime_ns,
            size_bytes=status.st_size if kind == "file" else 0,
            link_to=None if leader == path else leader,
            target=_read_target(whole) if is_link else None,
            xattrs={} if is_link else _read_xattrs(whole),
        )
    groups: dict[str, int] = {}
    for entry in entries.values():
        leader = entry.link_to or entry.path
        groups[leader] = groups.get(leader, 0) + 1
    return {
        path: replace(entry, links=groups[entry.link_to or path]) for path, entry in entries.items()
    }


def _kind_of(status: os.stat_result) -> str | None:
    return _KINDS.get(stat.S_IFMT(status.st_mode))


def _walk(root: Path, path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the paths below the root with their status, parents first, in a fixed order."""
    status = (root / path).lstat()
    yield path, status
    if stat.S_ISDIR(status.st_mode):
        for name in sorted(one.name for one in (root / path).iterdir()):
            yield from _walk(root, name if path == ROOT else f"{path}/{name}")


def _read_target(link: Path) -> str:
    """Return the target of a symbolic link as it is; Path.readlink() would drop "./" and "//"."""
    return os.readlink(link)  # noqa: PTH115


def _read_xattrs(path: Path) -> dict[str, str]:
    """Return the extended attributes of a file in hexadecimal; none where there is no support."""
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return {}
    return {
        name: os.getxattr(path, name, follow_symlinks=False).hex()
        for name in sorted(names)
        if name != _INHERITED
    }


def signature(status: os.stat_result) -> Signature:
    return tuple(getattr(status, f"st_{name}") for name in _SIGNED)


def signatures(root: Path) -> dict[str, Signature]:
    """Return the signature of every path below the root; the root itself may be made anew."""
    return {path: signature(status) for path, status in _walk(root, ROOT) if path != ROOT}


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, _HASH).hexdigest()
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return found


def with_digests(root: Path, entries: Mapping[str, TreeEntry]) -> dict[str, TreeEntry]:
    return {
        path: replace(entry, digest=_digest_of(root / path))
        if entry.kind == "file" and entry.link_to is None
        else entry
        for path, entry in entries.items()
    }


def total_bytes(entries: Mapping[str, TreeEntry]) -> int:
    """Return the bytes of all files, each once however many links it has."""
    return sum(entry.size_bytes for entry in entries.values() if entry.link_to is None)


def difference(wanted: Mapping[str, TreeEntry], found: Mapping[str, TreeEntry]) -> str | None:
    """Return the first difference of the trees, by digests where both have one; None if equal."""
    for path in sorted(wanted.keys() ^ found.keys()):
        return f"{path} {'is missing' if path in wanted else 'is there'}"
    for path, one in wanted.items():
        other = found[path]
        if one.digest is None or other.digest is None:
            one, other = replace(one, digest=None), replace(other, digest=None)
        if one != other:
            names = [key for key, value in vars(one).items() if vars(other)[key] != value]
            return f"{path} has another {' and '.join(names)}"
    return None


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

    def run(self) -> None:
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
        """Remove what the original has not, or of another kind or with other links."""
        _make_writable(self._data / folder, stat.S_IRWXU)
        for name in [one.name for one in (self._data / folder).iterdir()]:
            path = name if folder == ROOT else f"{folder}/{name}"
            status, wanted = (self._data / path).lstat(), self._wanted.get(path)
            is_known = wanted is not None and _kind_of(status) == wanted.kind
            if wanted is not None and wanted.kind == "file":
                is_known = is_known and status.st_nlink == wanted.links
            if not is_known:
                _remove(self._data / path)
            elif stat.S_ISDIR(status.st_mode):
                self._remove_strangers(path)

    def _make(self, entry: TreeEntry) -> None:
        path, is_there = self._data / entry.path, os.path.lexists(self._data / entry.path)
        if entry.kind == "file" and entry.link_to is None:
            self._make_file(entry, path)
        elif entry.kind == "file":
            leader = self._data / (entry.link_to or "")
            if not is_there or not leader.samefile(path):
                _remove(path)
                path.hardlink_to(leader)
        elif entry.kind == "directory":
            if not is_there:
                path.mkdir(0o700)
        else:
            if entry.kind == "symlink" and entry.target is not None:
                if not is_there or _read_target(path) != entry.target:
                    _remove(path)
                    path.symlink_to(entry.target)
            elif not is_there:
                os.mkfifo(path)
            _set_metadata(path, entry)

    def _make_file(self, entry: TreeEntry, path: Path) -> None:
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
                is_shared = self._has_reflink and _clone(source, target)
                self.changed[entry.path] = [] if is_shared else _copy_differing(source, target)
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
    """Set owner, mode, attributes and mtime in this order: chown(2) clears bits of the mode."""
    status = path.lstat()
    if (status.st_uid, status.st_gid) != (entry.uid, entry.gid):
        os.chown(path, entry.uid, entry.gid, follow_symlinks=False)
        status = path.lstat()
    if entry.kind != "symlink":
        if (found := _read_xattrs(path)) != entry.xattrs:
            for name in found.keys() - entry.xattrs.keys():
                os.removexattr(path, name)
            for name, value in entry.xattrs.items():
                if found.get(name) != value:
                    os.setxattr(path, name, bytes.fromhex(value))
            status = path.lstat()  # an ACL changes the mode
        if stat.S_IMODE(status.st_mode) != entry.mode:
            path.chmod(entry.mode)
    if status.st_mtime_ns != entry.mtime_ns:
        os.utime(path, ns=(status.st_atime_ns, entry.mtime_ns), follow_symlinks=False)
