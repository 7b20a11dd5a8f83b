"""Files that are made cold, and the certificate of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from pagecage.errors import EXIT_OWN_FAILURE, PagecageError
from pagecage.linux.page_cache import (
    EvictedFile,
    Holders,
    Residency,
    count_pages,
    evict_pages,
    find_files,
    holders_of,
    page_out,
)
from pagecage.units import format_bytes, format_seconds

VERSION = 1


@dataclass(frozen=True)
class CertifiedFile:
    """A file with its pages in the page cache before and after the eviction.

    `evicted_by` names the means that dropped pages, and `stayed` is a clause about the pages that
    are left; empty if none is.
    """

    path: str
    size_bytes: int
    filesystem: str
    pages_before: int
    pages_after: int
    evicted_by: tuple[str, ...] = ()
    stayed: str = ""


@dataclass(frozen=True)
class CommandRun:
    """A command after the eviction, and the files' pages at its start and after its end."""

    command: str
    pages_at_start: int
    pages_at_end: int
    seconds: float
    exit_status: int


@dataclass(frozen=True)
class ColdCertificate:
    """Evidence that files were out of the page cache at a time.

    `unix_seconds` is the time of the last count. `method` is the system call that counted:
    cachestat, mincore, or both. Caches below the kernel's page cache are not part of it.
    """

    unix_seconds: float
    kernel: str
    method: str
    page_bytes: int
    files: tuple[CertifiedFile, ...]
    allowed_pages: int = 0
    run: CommandRun | None = None

    @property
    def pages_before(self) -> int:
        return sum(file.pages_before for file in self.files)

    @property
    def pages_after(self) -> int:
        return sum(file.pages_after for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def is_cold(self) -> bool:
        return self.pages_after <= self.allowed_pages

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as documented in docs/FORMAT.md."""
        return {
            "type": "cold_certificate",
            "certificate_version": VERSION,
            **asdict(self),
            "pages_before": self.pages_before,
            "pages_after": self.pages_after,
            "is_cold": self.is_cold,
        }

    def summary(self) -> str:
        count = f"{len(self.files):,} file{'s' * (len(self.files) != 1)}"
        state = "cold" if self.is_cold else "not cold"
        return (
            f"{state}: {count}, {format_bytes(self.size_bytes)}: {self.pages_after:,} pages in the"
            f" page cache, {self.pages_before:,} before ({self.method})"
        )

    def stayed(self) -> list[str]:
        return [
            f"{file.path}: {file.pages_after:,} of {-(-file.size_bytes // self.page_bytes):,}"
            f" pages stay: {file.stayed}"
            for file in self.files
            if file.pages_after
        ]

    def run_line(self) -> str:
        if self.run is None:
            return ""
        run = self.run
        status = run.exit_status
        how = f"exit status {status}" if status >= 0 else f"ended by signal {-status}"
        end_bytes = run.pages_at_end * self.page_bytes
        return (
            f"{run.command}: {format_seconds(run.seconds)}, {how}; {run.pages_at_start:,} pages at"
            f" its start, {run.pages_at_end:,} ({format_bytes(end_bytes)}) after its end"
        )


class NotCold(PagecageError):
    """Pages of the files stay in the page cache. `certificate` has their number and the reasons."""

    def __init__(self, certificate: ColdCertificate) -> None:
        first, *others = certificate.stayed()
        plural = "s" * (len(others) > 1)
        more = f"; so do pages of {len(others):,} other file{plural}" if others else ""
        hint = f"end what holds them, or allow them: --allow-pages {certificate.pages_after}"
        super().__init__(f"{first}{more}", hint, EXIT_OWN_FAILURE)
        self.certificate = certificate


_MOST_NAMED = 3


@dataclass
class _Eviction:
    """The state of one file: its counts, what dropped pages, and why the kernel refused."""

    file: EvictedFile
    before: Residency
    left: Residency
    evicted_by: tuple[str, ...] = ()
    refused: str = ""

    def certified(self, holders: Holders) -> CertifiedFile:
        return CertifiedFile(
            path=str(self.file.path),
            size_bytes=self.before.file_bytes,
            filesystem=self.file.filesystem,
            pages_before=self.before.pages,
            pages_after=self.left.pages,
            evicted_by=self.evicted_by,
            stayed="" if self.left.is_empty else "; ".join(_reasons(self, holders)),
        )


def cold(paths: Iterable[str | os.PathLike[str]], *, allow_pages: int = 0) -> ColdCertificate:
    """Drop files from the page cache and count what is left.

    Directories are walked; links below them are skipped. Dirty pages are written back first. Pages
    that other processes map are paged out there (process_madvise(2)), which needs root.

    Raises NotCold, which has the certificate, if more than `allow_pages` pages of all files stay.
    Raises PagecageError for a path that does not exist, cannot be read, or is on a file system
    without a page cache of its own, and for files whose pages the kernel hides.
    """
    evictions: list[_Eviction] = []
    for file in find_files(os.fspath(path) for path in paths):
        with suppress(FileNotFoundError):  # it is gone, as temporary files of a server are
            before = count_pages(file)
            left = before if before.is_empty else evict_pages(file)
            by = ("posix_fadvise",) if left.pages < before.pages else ()
            evictions.append(_Eviction(file, before, left, by))
    held = [one.file for one in evictions if not one.left.is_empty]
    holders = holders_of(held) if held else Holders({})
    for one in evictions:
        mapped_by = holders.by_file.get(one.file.identity, ())
        if not one.left.is_empty and mapped_by:
            one.refused = next(filter(None, [page_out(holder) for holder in mapped_by]), "")
            with suppress(FileNotFoundError):
                left = evict_pages(one.file)
                if left.pages < one.left.pages:
                    one.evicted_by += ("process_madvise",)
                one.left = left
    certificate = ColdCertificate(
        unix_seconds=round(time.time(), 3),
        kernel=os.uname().release,
        method=" and ".join(sorted({one.left.method for one in evictions})),
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
        files=tuple(one.certified(holders) for one in evictions),
        allowed_pages=allow_pages,
    )
    if not certificate.is_cold:
        raise NotCold(certificate)
    return certificate


def resident_pages(paths: Iterable[str | os.PathLike[str]]) -> int:
    """Return the pages of files in the page cache. Raises PagecageError as cold() does."""
    total = 0
    for file in find_files(os.fspath(path) for path in paths):
        with suppress(FileNotFoundError):
            total += count_pages(file).pages
    return total


def _reasons(one: _Eviction, holders: Holders) -> Iterator[str]:
    if one.left.dirty:
        yield f"{one.left.dirty:,} are dirty again, because a process writes the file"
    if one.left.writeback:
        yield f"{one.left.writeback:,} are being written to the disk"
    mapped_by = holders.by_file.get(one.file.identity, ())
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
