"""Pages of a file in the page cache, and their eviction."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pagecage.agent.system.page_cache import cachestat, mincore_pages
from pagecage.errors import PagecageError
from pagecage.eviction.files import EvictedFile

_TRIES = 5
_PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class PageCounts:
    """Pages of a file in the page cache, and the system call that counted them.

    `dirty` and `writeback` are None where mincore(2) counted.
    """

    resident: int
    method: str
    dirty: int | None = None
    writeback: int | None = None


def count_pages(file: EvictedFile) -> PageCounts:
    """Count a file's pages.

    cachestat(2) sees none of the pages of a file on overlayfs, which are in the cache of the file
    below; mincore(2) sees them. Raises FileNotFoundError if the file is gone, and PagecageError if
    the kernel hides the pages of another user's file.
    """
    with _opened(file) as descriptor:
        return _count(file, descriptor)


def evict_pages(file: EvictedFile) -> PageCounts:
    """Write back and drop a file's pages; return what is left.

    POSIX_FADV_DONTNEED drops only clean, unmapped pages (mm/fadvise.c). Raises as count_pages().
    """
    with _opened(file) as descriptor:
        for attempt in range(_TRIES):
            with suppress(OSError):  # a file system without it, such as a read-only squashfs
                os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            left = _count(file, descriptor)
            if not left.resident:
                break
            time.sleep(_PAUSE_SECONDS * attempt)
    return left


@contextmanager
def _opened(file: EvictedFile) -> Iterator[int]:
    """Open a file; FileNotFoundError passes, any other refusal is a PagecageError."""
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        message = f"{file.path} cannot be read: {error.strerror}"
        raise PagecageError(message, "run as its owner or as root") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _count(file: EvictedFile, descriptor: int) -> PageCounts:
    status = os.fstat(descriptor)
    is_visible = os.geteuid() in (0, status.st_uid) or os.access(file.path, os.W_OK)
    if not is_visible:  # mm/mincore.c: mincore(2) would report all pages as resident
        raise PagecageError(
            f"{file.path} belongs to another user and is read-only, so the kernel hides its pages",
            "run as its owner or as root",
        )
    found = None if file.is_stacked else cachestat(descriptor)
    if found is not None:
        return PageCounts(found.resident, "cachestat", found.dirty, found.writeback)
    return PageCounts(mincore_pages(descriptor, status.st_size), "mincore")
