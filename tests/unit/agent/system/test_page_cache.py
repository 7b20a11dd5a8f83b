"""The page cache of a real file: evicted, loaded, and measured in two ways that must agree."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from pagecage.linux import page_cache
from pagecage.linux.page_cache import (
    Residency,
    cachestat_pages,
    evict,
    load,
    measure_residency,
    mincore_pages,
)
from pagecage.units import kernel_page_bytes

PAGE_BYTES = kernel_page_bytes()

PAGES = 64


@pytest.fixture
def file(on_disk: Path) -> Path:
    path = on_disk / "data.bin"
    with path.open("wb") as opened:
        opened.write(os.urandom(PAGES * PAGE_BYTES))
    return path


def by_mincore(path: Path) -> int:
    with path.open("rb") as opened:
        return mincore_pages(opened.fileno(), path.stat().st_size)


def test_evicted_is_empty_even_right_after_writing(file: Path) -> None:
    left = evict(file)
    assert left.is_empty
    assert not left.is_full
    assert left.file_bytes == PAGES * PAGE_BYTES


def test_loaded_is_full(file: Path) -> None:
    evict(file)
    assert load(file).is_full
    assert measure_residency(file).resident_bytes == PAGES * PAGE_BYTES


def test_a_page_that_is_read_is_resident_and_no_file_is_half_empty(file: Path) -> None:
    evict(file)
    with file.open("rb", buffering=0) as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(opened.fileno(), PAGE_BYTES, 10 * PAGE_BYTES)
        found = measure_residency(file)
    assert found.resident_bytes == PAGE_BYTES
    assert not found.is_empty
    assert not found.is_full


@pytest.mark.parametrize("read_pages", [0, 1, 13, PAGES])
def test_both_ways_of_counting_agree(file: Path, read_pages: int) -> None:
    evict(file)
    with file.open("rb", buffering=0) as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for page in range(read_pages):
            os.pread(opened.fileno(), PAGE_BYTES, page * PAGE_BYTES)
        counted = cachestat_pages(opened.fileno())
    assert by_mincore(file) == read_pages
    if counted is None:
        assert tuple(map(int, os.uname().release.split(".")[:2])) < (6, 5), (
            "only older kernels lack cachestat(2)"
        )
    else:
        assert counted == read_pages


def test_a_range_counts_itself_alone(file: Path) -> None:
    load(file)
    with file.open("rb") as opened:
        counted = cachestat_pages(opened.fileno(), 8 * PAGE_BYTES, 4 * PAGE_BYTES)
    assert counted in (4, None)


def test_a_mapped_page_stays_and_is_reported(file: Path) -> None:
    load(file)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[5 * PAGE_BYTES] >= 0
        left = evict(file)
        assert not left.is_empty
    assert evict(file).is_empty


def test_a_last_page_that_is_not_whole_counts_whole(on_disk: Path) -> None:
    path = on_disk / "odd.bin"
    path.write_bytes(os.urandom(2 * PAGE_BYTES + 1))
    assert load(path).is_full
    assert measure_residency(path).resident_bytes == 3 * PAGE_BYTES
    assert evict(path).is_empty


def test_an_empty_file_is_both(on_disk: Path) -> None:
    path = on_disk / "empty.bin"
    path.touch()
    found = measure_residency(path)
    assert found.is_empty
    assert found.is_full
    assert by_mincore(path) == 0


def test_an_older_kernel_is_measured_by_mincore(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "cachestat_pages", lambda *_: None)
    load(file)
    assert measure_residency(file) == Residency(PAGES * PAGE_BYTES, PAGES * PAGE_BYTES, "mincore")


def test_mincore_is_not_used_for_other_users_files(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since Linux 5.2 mincore(2) reports all pages of another user's file as resident."""
    monkeypatch.setattr(page_cache, "cachestat_pages", lambda *_: None)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match="is not writable"):
        measure_residency(file)


def test_a_file_that_is_gone_is_an_error(on_disk: Path) -> None:
    with pytest.raises(FileNotFoundError):
        measure_residency(on_disk / "gone.bin")


def test_a_bad_descriptor_is_an_error_and_not_a_count() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        cachestat_pages(999_999)
