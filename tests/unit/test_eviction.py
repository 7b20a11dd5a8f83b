"""Files made cold: dropped, counted, and certified, or refused with the reason."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagecage.errors import EXIT_OWN_FAILURE, EXIT_USAGE, PagecageError
from pagecage.eviction import ColdCertificate, NotCold, cold, resident_pages
from pagecage.linux.page_cache import find_files, load, measure_residency
from pagecage.units import kernel_page_bytes
from tests.builders.mapped import mapped
from tests.order.conftest import on_disk

PAGE_BYTES = kernel_page_bytes()

__all__ = ["on_disk"]

PAGES = 64
IS_ROOT = os.geteuid() == 0


@pytest.fixture
def file(on_disk: Path) -> Path:
    return write(on_disk / "data.bin")


def write(path: Path, pages: int = PAGES) -> Path:
    path.write_bytes(os.urandom(pages * PAGE_BYTES))
    return path


def test_a_loaded_file_is_cold_afterwards(file: Path) -> None:
    os.sync()
    load(file)
    found = cold([file])
    assert (found.pages_before, found.pages_after, found.is_cold) == (PAGES, 0, True)
    assert measure_residency(file).is_empty
    [one] = found.files
    assert (one.path, one.size_bytes) == (str(file), PAGES * PAGE_BYTES)
    assert (one.evicted_by, one.stayed) == (("posix_fadvise",), "")
    assert found.kernel == os.uname().release
    assert found.page_bytes == os.sysconf("SC_PAGE_SIZE")


def test_dirty_pages_are_written_first(file: Path) -> None:
    content = file.read_bytes()
    assert cold([file]).pages_after == 0
    assert file.read_bytes() == content


def test_a_cold_file_stays_cold(file: Path) -> None:
    cold([file])
    [one] = cold([file]).files
    assert (one.pages_before, one.pages_after, one.evicted_by) == (0, 0, ())


def test_a_file_of_no_bytes(on_disk: Path) -> None:
    (on_disk / "empty").touch()
    assert cold([on_disk / "empty"]).pages_after == 0


def test_a_last_page_that_is_not_full(on_disk: Path) -> None:
    path = on_disk / "odd"
    path.write_bytes(b"x" * (PAGE_BYTES + 1))
    assert (cold([path]).pages_before, resident_pages([path])) == (2, 0)


def test_directories_are_walked_and_each_file_counts_once(on_disk: Path) -> None:
    (on_disk / "below/deep").mkdir(parents=True)
    write(on_disk / "below/a"), write(on_disk / "below/deep/b")
    (on_disk / "below/again").hardlink_to(on_disk / "below/a")
    (on_disk / "below/link").symlink_to(on_disk / "below/a")
    os.mkfifo(on_disk / "below/pipe")
    found = cold([on_disk / "below", on_disk / "below/deep/b", str(on_disk / "below/deep")])
    paths = [str(on_disk / "below" / name) for name in ("a", "deep/b")]
    assert [file.path for file in found.files] == paths


def test_a_link_that_is_named_is_followed(file: Path, on_disk: Path) -> None:
    (on_disk / "link").symlink_to(file)
    load(file)
    cold([on_disk / "link"])
    assert measure_residency(file).is_empty


def test_pages_mapped_by_one_process_are_paged_out_as_root(file: Path) -> None:
    with mapped(file) as process:
        if not IS_ROOT:
            with pytest.raises(NotCold, match="process_madvise: Operation not permitted"):
                cold([file])
            return
        [one] = cold([file]).files
        assert (one.pages_after, one.evicted_by[-1]) == (0, "process_madvise")
        assert process.poll() is None


def test_pages_mapped_by_two_processes_stay_and_are_named(file: Path) -> None:
    with mapped(file) as first, mapped(file) as second, pytest.raises(NotCold) as caught:
        cold([file])
    error = caught.value
    assert error.message.startswith(f"{file}: {PAGES} of {PAGES} pages stay: mapped by python")
    assert f"(pid {first.pid})" in error.message
    assert f"(pid {second.pid})" in error.message
    assert "the kernel keeps pages that several processes map" in error.message
    assert error.exit_code == EXIT_OWN_FAILURE
    assert (error.certificate.pages_after, error.certificate.is_cold) == (PAGES, False)
    assert cold([file]).is_cold


@pytest.mark.skipif(not IS_ROOT, reason="locks more than an ordinary user may")
def test_locked_pages_stay_and_are_named(file: Path) -> None:
    with mapped(file, "locked") as process, pytest.raises(NotCold) as caught:
        cold([file])
    assert f"(pid {process.pid}), which has locked it in memory" in caught.value.message


def test_dirty_pages_of_a_mapping_are_written_first(file: Path) -> None:
    with mapped(file, "dirty"):
        if IS_ROOT:
            assert cold([file]).is_cold
            return
        with pytest.raises(NotCold):
            cold([file])


def test_pages_that_may_stay(file: Path) -> None:
    with mapped(file), mapped(file):
        found = cold([file], allow_pages=PAGES)
        with pytest.raises(NotCold):
            cold([file], allow_pages=PAGES - 1)
    assert (found.pages_after, found.is_cold, found.allowed_pages) == (PAGES, True, PAGES)


def test_several_files_that_stay_are_counted(file: Path, on_disk: Path) -> None:
    other = write(on_disk / "other.bin")
    with mapped(file), mapped(file), mapped(other), mapped(other), pytest.raises(NotCold) as caught:
        cold([on_disk])
    assert caught.value.message.endswith("; so do pages of 1 other file")
    assert len(caught.value.certificate.stayed()) == 2


def test_files_that_come_and_go_meanwhile(on_disk: Path) -> None:
    """A server's temporary files: none of them is an error."""
    write(on_disk / "stays")
    ended = threading.Event()

    def churn() -> None:
        number = 0
        while not ended.is_set():
            folder = on_disk / f"d{number % 7}"
            folder.mkdir(exist_ok=True)
            (folder / "temporary").write_bytes(b"x" * PAGE_BYTES)
            (folder / "temporary").unlink()
            folder.rmdir()
            number += 1

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(30):
            found = cold([on_disk], allow_pages=8)
            assert str(on_disk / "stays") in [one.path for one in found.files]
    finally:
        ended.set()
        thread.join()


def test_a_file_that_is_gone_between_the_list_and_the_count(
    file: Path, on_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = write(on_disk / "gone")
    listed = find_files([str(file), str(gone)])
    gone.unlink()
    monkeypatch.setattr("pagecage.eviction.find_files", lambda _: listed)
    assert [one.path for one in cold([on_disk]).files] == [str(file)]
    assert resident_pages([on_disk]) == 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nope", "nope does not exist"),
        ("empty", "empty contains no regular file"),
        ("pipe", "pipe contains no regular file"),
        ("data.bin/x", "cannot be read: Not a directory"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
    ],
)
def test_a_path_that_cannot_be_made_cold(file: Path, on_disk: Path, name: str, says: str) -> None:
    (on_disk / "empty").mkdir()
    os.mkfifo(on_disk / "pipe")
    (on_disk / "loop").symlink_to("loop")
    with pytest.raises(PagecageError, match=says) as caught:
        cold([on_disk / name])
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.hint


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("", "'' is not a valid path"),
        ("a\0b", "is not a valid path"),
        ("x" * 5000, "File name too long"),
        ("/proc/self", "/proc/self is on proc, whose files the kernel makes up"),
    ],
)
def test_a_text_that_is_no_file(path: str, says: str) -> None:
    with pytest.raises(PagecageError, match=says):
        cold([path])


def test_no_path_at_all() -> None:
    with pytest.raises(PagecageError, match="no file was given"):
        cold([])


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="has no tmpfs")
def test_tmpfs_is_one_sentence() -> None:
    with pytest.raises(PagecageError) as caught:
        cold(["/dev/shm"])
    why = "whose files are the page cache itself, so it cannot be made cold"
    assert caught.value.message == f"/dev/shm is on tmpfs, {why}"


def test_a_certificate_is_json(file: Path) -> None:
    found = cold([file]).to_json()
    assert json.loads(json.dumps(found)) == json.loads(json.dumps(found))
    assert (found["type"], found["is_cold"], found["run"]) == ("cold_certificate", True, None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 5 * PAGE_BYTES), min_size=1, max_size=5))
def test_any_sizes(on_disk: Path, sizes: list[int]) -> None:
    folder = on_disk / "sizes"
    folder.mkdir(exist_ok=True)
    for number, size in enumerate(sizes):
        (folder / str(number)).write_bytes(b"x" * size)
    paths = [folder / str(number) for number in range(len(sizes))]
    found: ColdCertificate = cold(paths)
    assert found.size_bytes == sum(sizes)
    assert found.pages_before == sum(-(-size // PAGE_BYTES) for size in sizes)
    assert found.pages_after == resident_pages(paths) == 0
