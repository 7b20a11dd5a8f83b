"""Files brought out of the page cache, with a certificate.

    from pagecage.cold import cold

    certificate = cold(["data", "index.db"])
    print(certificate.to_json())

It needs nothing but Python's standard library, and root only for files of other users and for pages
that other processes map.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pagecage.eviction.certificate import CertifiedFile, ColdCertificate, NotCold
from pagecage.eviction.files import EvictedFile, find_files
from pagecage.eviction.mappings import Holders, PageHolder, holders_of, page_out
from pagecage.eviction.page_counts import PageCounts, count_pages, evict_pages

__all__ = ["ColdCertificate", "NotCold", "cold", "resident_pages"]
_MOST_NAMED = 3


@dataclass
class _Eviction:
    """The state of one file: its counts, what dropped pages, and why the kernel refused."""

    file: EvictedFile
    size_bytes: int
    before: PageCounts
    left: PageCounts
    evicted_by: tuple[str, ...] = ()
    refused: str = ""


def cold(paths: Iterable[str | os.PathLike[str]], *, allow_pages: int = 0) -> ColdCertificate:
    """Drop files from the page cache and count what is left.

    Directories are walked; links below them are skipped. Dirty pages are written back first. Pages
    that other processes map are paged out there (process_madvise(2)), which needs root.

    Raises NotCold, which has the certificate, if more than `allow_pages` pages of all files stay.
    Raises PagecageError for a path that does not exist, cannot be read, or is on a file system
    without a page cache of its own, and for files whose pages the kernel hides.
    """
    files = find_files(os.fspath(path) for path in paths)
    evictions = [one for file in files if (one := _evict(file)) is not None]
    held = [one.file for one in evictions if one.left.resident]
    holders = holders_of(held) if held else Holders({})
    for one in evictions:
        if one.left.resident:
            _page_out(one, _of(one, holders))
    certificate = _certificate(evictions, holders, allow_pages)
    if not certificate.is_cold:
        raise NotCold(certificate)
    return certificate


def resident_pages(paths: Iterable[str | os.PathLike[str]]) -> int:
    """Return the pages of files in the page cache. Raises PagecageError as cold() does."""
    files = find_files(os.fspath(path) for path in paths)
    return sum(counts.resident for file in files if (counts := _count(file)) is not None)


def _count(file: EvictedFile) -> PageCounts | None:
    """Return a file's pages; None if it is gone, as temporary files of a server are."""
    try:
        return count_pages(file)
    except FileNotFoundError:
        return None


def _evict(file: EvictedFile) -> _Eviction | None:
    try:
        before = count_pages(file)
        left = evict_pages(file) if before.resident else before
        size_bytes = file.path.stat().st_size
    except FileNotFoundError:
        return None
    by = ("posix_fadvise",) if left.resident < before.resident else ()
    return _Eviction(file, size_bytes, before, left, by)


def _page_out(one: _Eviction, holders: tuple[PageHolder, ...]) -> None:
    """Make the processes that map a file give up its pages, and evict it again."""
    reasons = [page_out(holder) for holder in holders]
    one.refused = next((text for text in reasons if text), "")
    try:
        left = evict_pages(one.file) if holders else one.left
    except FileNotFoundError:
        return
    if left.resident < one.left.resident:
        one.evicted_by += ("process_madvise",)
    one.left = left


def _of(one: _Eviction, holders: Holders) -> tuple[PageHolder, ...]:
    return holders.by_file.get((one.file.device, one.file.inode), ())


def _certificate(evictions: list[_Eviction], holders: Holders, allow_pages: int) -> ColdCertificate:
    methods = sorted({one.left.method for one in evictions})
    return ColdCertificate(
        unix_seconds=round(time.time(), 3),
        kernel=os.uname().release,
        method=" and ".join(methods),
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
        files=tuple(
            CertifiedFile(
                path=str(one.file.path),
                size_bytes=one.size_bytes,
                filesystem=one.file.filesystem,
                pages_before=one.before.resident,
                pages_after=one.left.resident,
                evicted_by=one.evicted_by,
                stayed="; ".join(_reasons(one, holders)) if one.left.resident else "",
            )
            for one in evictions
        ),
        allowed_pages=allow_pages,
    )


def _reasons(one: _Eviction, holders: Holders) -> Iterator[str]:
    """Yield why the pages of a file stay, as clauses."""
    if one.left.dirty:
        yield f"{one.left.dirty:,} are dirty again, because a process writes the file"
    if one.left.writeback:
        yield f"{one.left.writeback:,} are being written to the disk"
    mapped_by = _of(one, holders)
    if mapped_by:
        named = ", ".join(holder.description for holder in mapped_by[:_MOST_NAMED])
        more = len(mapped_by) - _MOST_NAMED
        yield f"mapped by {named}" + (f" and {more} more" if more > 0 else "")
        if len(mapped_by) > 1:
            yield "the kernel keeps pages that several processes map"
        if one.refused and not any(holder.locked_bytes for holder in mapped_by):
            yield f"process_madvise: {one.refused}"
    elif not holders.complete:
        yield "another user's process may map the file; root can see it"
    elif not one.left.dirty and not one.left.writeback:
        yield "a process may be reading the file"
