"""Directory trees as data: one entry per path, with everything that a restored tree must equal."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = "."
_DIGEST_BYTES = 16
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
}
_INHERITED = "security.selinux"  # a label that the policy gives to new files, not the program

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
        kind = kind_of(status)
        if kind is None:
            continue
        is_group = kind == "file" and status.st_nlink > 1
        leader = first.setdefault(status.st_ino, path) if is_group else path
        entries[path] = _entry(root, path, kind, status, None if leader == path else leader)
    groups: dict[str, int] = {}
    for entry in entries.values():
        leader = entry.link_to or entry.path
        groups[leader] = groups.get(leader, 0) + 1
    return {
        path: replace(entry, links=groups[entry.link_to or path]) for path, entry in entries.items()
    }


def kind_of(status: os.stat_result) -> str | None:
    """Return the kind of a file; None for a socket or a device."""
    return _KINDS.get(stat.S_IFMT(status.st_mode))


def _walk(root: Path, path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the paths below the root with their status, parents first, in a fixed order."""
    status = (root / path).lstat()
    yield path, status
    if stat.S_ISDIR(status.st_mode):
        for name in sorted(one.name for one in (root / path).iterdir()):
            yield from _walk(root, name if path == ROOT else f"{path}/{name}")


def _entry(
    root: Path, path: str, kind: str, status: os.stat_result, link_to: str | None
) -> TreeEntry:
    whole = root / path
    return TreeEntry(
        path=path,
        kind=kind,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        mtime_ns=status.st_mtime_ns,
        size_bytes=status.st_size if kind == "file" else 0,
        link_to=link_to,
        target=read_target(whole) if kind == "symlink" else None,
        xattrs={} if kind == "symlink" else read_xattrs(whole),
    )


def read_target(link: Path) -> str:
    """Return the target of a symbolic link as it is; Path.readlink() would drop "./" and "//"."""
    return os.readlink(link)  # noqa: PTH115


def read_xattrs(path: Path) -> dict[str, str]:
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
    """Return what the kernel changes whenever a file's content or metadata change."""
    return (
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_mode,
        status.st_uid,
        status.st_gid,
        status.st_nlink,
    )


def signatures(root: Path) -> dict[str, Signature]:
    """Return the signature of every path below the root but that of the root itself.

    The root's is left out because its place, not its content, may be made anew.
    """
    return {path: signature(status) for path, status in _walk(root, ROOT) if path != ROOT}


def digest_of(path: Path) -> str:
    """Return the hash of a file's content; its pages do not stay in the page cache."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, _new_digest).hexdigest()
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return found


def _new_digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=_DIGEST_BYTES)


def with_digests(root: Path, entries: Mapping[str, TreeEntry]) -> dict[str, TreeEntry]:
    """Return the entries with the hash of every file's content."""
    return {
        path: replace(entry, digest=digest_of(root / path))
        if entry.kind == "file" and entry.link_to is None
        else entry
        for path, entry in entries.items()
    }


def total_bytes(entries: Mapping[str, TreeEntry]) -> int:
    """Return the bytes of all files, each once however many links it has."""
    return sum(entry.size_bytes for entry in entries.values() if entry.link_to is None)


def difference(wanted: Mapping[str, TreeEntry], found: Mapping[str, TreeEntry]) -> str | None:
    """Return how the trees differ, by their first difference; None if they are equal.

    Digests count only where both have one.
    """
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


def entries_to_json(entries: Mapping[str, TreeEntry]) -> list[dict[str, Any]]:
    """Return the entries as JSON data."""
    return [asdict(entry) for entry in entries.values()]


def entries_from_json(data: list[dict[str, Any]]) -> dict[str, TreeEntry]:
    """Return the entries of JSON data."""
    return {one["path"]: TreeEntry(**one) for one in data}
