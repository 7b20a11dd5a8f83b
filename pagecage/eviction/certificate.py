"""The certificate: evidence of the page-cache state of files at given moments."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pagecage.errors import EXIT_FAILED, PagecageError
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
    """A command that ran after the eviction, and the files' pages at its start and after its end.

    A negative exit status is that of a signal.
    """

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
        """Pages of all files before the eviction."""
        return sum(file.pages_before for file in self.files)

    @property
    def pages_after(self) -> int:
        """Pages of all files after the eviction."""
        return sum(file.pages_after for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def is_cold(self) -> bool:
        """True if no more pages are left than were allowed."""
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
        """Return one line about all files."""
        count = f"{len(self.files):,} file{'s' * (len(self.files) != 1)}"
        state = "cold" if self.is_cold else "not cold"
        return (
            f"{state}: {count}, {format_bytes(self.size_bytes)}: {self.pages_after:,} pages in the"
            f" page cache, {self.pages_before:,} before ({self.method})"
        )

    def stayed(self) -> list[str]:
        """Return one line for each file with pages left."""
        return [
            f"{file.path}: {file.pages_after:,} of {_pages(file.size_bytes, self.page_bytes):,}"
            f" pages stay: {file.stayed}"
            for file in self.files
            if file.pages_after
        ]

    def run_line(self) -> str:
        """Return one line about the command; empty without one."""
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


def _pages(size_bytes: int, page_bytes: int) -> int:
    return -(-size_bytes // page_bytes)


class NotCold(PagecageError):
    """Pages of the files stay in the page cache. `certificate` has their number and the reasons."""

    def __init__(self, certificate: ColdCertificate) -> None:
        first, *others = certificate.stayed()
        plural = "s" * (len(others) > 1)
        more = f"; so do pages of {len(others):,} other file{plural}" if others else ""
        hint = f"end what holds them, or allow them: --allow-pages {certificate.pages_after}"
        super().__init__(f"{first}{more}", hint, EXIT_FAILED)
        self.certificate = certificate
