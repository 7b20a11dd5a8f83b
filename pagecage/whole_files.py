"""Files written whole or not at all, and the digests of their contents."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


def text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def json_sha256(value: Any) -> str:
    return text_sha256(json.dumps(value, sort_keys=True))


def document_sha256(document: Mapping[str, Any], digest_key: str) -> str:
    """Return the digest of a document without the key that holds its own digest."""
    return json_sha256({key: value for key, value in document.items() if key != digest_key})


_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_PART = re.compile(r"\..+\.(\d+)\.part")


def write_whole(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    with whole_file(path, mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Yield a file that gets its name, synced, at the end; an exception leaves an earlier one."""
    part = _part_of(path)
    remove_abandoned(path.parent)
    try:
        descriptor = os.open(part, _NEW_FILE, mode)
        with os.fdopen(descriptor, "w+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
            file.flush()
            os.fsync(file.fileno())
            part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def append_line(path: Path, line: bytes) -> None:
    """Append a line of JSON to a file and sync both it and, if it is new, its folder.

    What a killed writer left of its last line is removed, so that a damaged line is always a
    damage. A link is not followed.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end = _end_of_lines(file, size)
        if end < 0:  # the last line lacks its newline alone
            line = b"\n" + line
        elif end < size:
            file.truncate(end)
        file.seek(0, os.SEEK_END)
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if not size:
        sync_folder(path.parent)


def _end_of_lines(file: IO[bytes], size: int) -> int:
    """Return the end of the last line with a newline; -1 if the bytes after it are whole JSON."""
    tail, begin = b"", size
    while begin and b"\n" not in tail:
        step = min(begin, 1 << 16)
        begin -= step
        tail = os.pread(file.fileno(), step, begin) + tail
    last = tail.rpartition(b"\n")[2]
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        return size - len(last)
    return -1


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a folder that gets its name at the end. Raises OSError if one with files is there."""
    with scratch_folder(path.parent, path.name) as part:
        yield part
        sync_tree(part)
        part.rename(path)
    sync_folder(path.parent)


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new temporary folder in `parent`; at the end remove it if it is still there."""
    remove_abandoned(parent)
    part = _part_of(parent / name)
    part.mkdir(mode=0o777)
    descriptor = os.open(part, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield part
    finally:
        os.close(descriptor)
        shutil.rmtree(part, ignore_errors=True)


def point_link(link: Path, target: str) -> None:
    """Point a symbolic link at `target`, whether it exists or not."""
    part = _part_of(link)
    remove_abandoned(link.parent)
    part.unlink(missing_ok=True)
    try:
        part.symlink_to(target)
        part.replace(link)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(link.parent)


def sync_folder(path: Path) -> None:
    """Force a folder's entries, or a file, to disk; else a power failure may undo a rename."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Force all files and folders below a folder to disk."""
    for folder, _, names in os.walk(path):
        for file in (Path(folder, name) for name in names):
            if not file.is_symlink():
                sync_folder(file)
        sync_folder(Path(folder))


def remove_abandoned(folder: Path) -> list[str]:
    try:
        names = [path.name for path in folder.iterdir() if _PART.fullmatch(path.name)]
    except OSError:
        return []
    return [name for name in names if _remove_if_abandoned(folder / name)]


def _part_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _remove_if_abandoned(path: Path) -> bool:
    if path.is_symlink():
        found = _PART.fullmatch(path.name)
        is_running = found is not None and Path(f"/proc/{found[1]}").exists()
        return not is_running and _unlink(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not path.is_dir():
            return _unlink(path)
        shutil.rmtree(path, ignore_errors=True)
        return True
    except OSError:  # its maker is at work
        return False
    finally:
        os.close(descriptor)


def _unlink(path: Path) -> bool:
    with suppress(OSError):
        path.unlink()
        return True
    return False
