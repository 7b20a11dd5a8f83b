"""The page cache of a real file: evicted, loaded, and measured in two ways that must agree."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.volume_server import glibc_version, require_c_library
from pagecage.errors import HostError
from pagecage.linux import page_cache
from pagecage.linux.block_device import Disk
from pagecage.linux.page_cache import (
    EvictedFile,
    FileMapping,
    PageHolder,
    Residency,
    caches_below,
    cachestat_pages,
    evict,
    holders_of,
    load,
    locked_bytes,
    measure_residency,
    mincore_pages,
    page_out,
    parse_maps,
)
from pagecage.process import identify
from pagecage.units import kernel_page_bytes
from tests.builders.mapped import mapped
from tests.fake_host import trees
from tests.tree import ROOT

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
    release = tuple(map(int, os.uname().release.split(".")[:2]))
    assert counted == read_pages or (counted is None and release < (6, 5))  # cachestat(2)


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


def disk(name: str) -> Disk:
    return Disk(name, "7:0", f"/dev/{name}", "ext4", "/", (name,))


@pytest.fixture
def backing(tmp_path: Path) -> Iterator[Path]:
    """Return a file on the checkout's disk, all of it in the page cache."""
    path = ROOT / "build" / f"backing-{tmp_path.name}"
    path.write_bytes(bytes(1 << 20))
    path.read_bytes()
    yield path
    path.unlink()


def loop(sys: Path, file: str, dio: str = "0") -> None:
    where = trees.disk(sys, "loop0", "7:0")
    (where / "loop").mkdir()
    (where / "loop/backing_file").write_text(f"{file}\n")
    (where / "loop/dio").write_text(f"{dio}\n")


def test_the_file_below_a_loop_device_is_measured_and_evicted(
    tmp_path: Path, backing: Path
) -> None:
    loop(tmp_path, str(backing))
    hot, cold = (
        caches_below(disk("loop0"), is_evicted=is_evicted, sys=tmp_path)
        for is_evicted in (False, True)
    )
    layer = {"layer": "loop0", "kind": "loop", "file": str(backing), "file_bytes": 1 << 20}
    assert hot == [{**layer, "resident_bytes": 1 << 20}]
    assert cold == [{**layer, "resident_bytes": 0}]


def test_a_file_that_cannot_be_read_is_not_known_to_be_cold(tmp_path: Path) -> None:
    loop(tmp_path, "/nowhere/disk.img")
    [found] = caches_below(disk("loop0"), is_evicted=True, sys=tmp_path)
    assert (found["file_bytes"], found["resident_bytes"]) == (None, None)


def test_direct_io_below_a_loop_device_has_no_cache(tmp_path: Path, backing: Path) -> None:
    loop(tmp_path, str(backing), dio="1")
    [found] = caches_below(disk("loop0"), is_evicted=False, sys=tmp_path)
    assert found["resident_bytes"] == 0


@pytest.mark.parametrize(
    ("uuid", "kind"),
    [
        ("LVM-abc123-cdata", "dm-cache"),
        ("LVM-abc123-vpool", "VDO"),
        ("VDO-0001", "VDO"),
        ("LVM-abc123-tpool", None),
        ("CRYPT-LUKS2-cdata", None),
    ],
)
def test_hidden_volumes_of_lvm_tell_their_cache(
    tmp_path: Path, uuid: str, kind: str | None
) -> None:
    for number, name in enumerate(("sda", "sdb")):
        trees.disk(tmp_path, name, f"8:{number}")
    hidden = trees.disk(tmp_path, "dm-1", "253:1", ("sdb",))
    (hidden / "dm").mkdir()
    (hidden / "dm/uuid").write_text(f"{uuid}\n")
    trees.disk(tmp_path, "dm-0", "253:0", ("sda", "dm-1"))
    found = caches_below(disk("dm-0"), is_evicted=True, sys=tmp_path)
    assert found == ([{"layer": "dm-1", "kind": kind}] if kind else [])


def test_bcache(tmp_path: Path) -> None:
    (trees.disk(tmp_path, "bcache0", "252:0") / "bcache").mkdir()
    found = caches_below(disk("bcache0"), is_evicted=True, sys=tmp_path)
    assert found == [{"layer": "bcache0", "kind": "bcache"}]


def plugin(folder: Path, *symbols: str) -> Path:
    path = folder / "libpcvolume.so"
    path.write_bytes(b"\x7fELF\0" + b"\0".join(symbol.encode() for symbol in symbols) + b"\0")
    return path


def test_an_old_glibc_is_refused_with_both_versions(tmp_path: Path) -> None:
    with pytest.raises(HostError) as refusal:
        require_c_library(plugin(tmp_path, "GLIBC_2.2.5", "GLIBC_2.100", "GLIBC_2.34"))
    major, minor = glibc_version() or (0, 0)
    has = f"this machine has glibc {major}.{minor}"
    assert refusal.value.message == f"libpcvolume.so needs glibc 2.100 or newer, and {has}"


def test_this_machine_loads_what_it_can(tmp_path: Path) -> None:
    require_c_library(plugin(tmp_path, "GLIBC_2.2.5", "GLIBC_2.17"))


def test_musl_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> str:
        raise ValueError(f"unrecognized configuration name {name}")

    monkeypatch.setattr(os, "confstr", refuse)
    with pytest.raises(HostError, match="a C library other than glibc"):
        require_c_library(plugin(tmp_path, "GLIBC_2.17"))


LINE = "7f0000000000-7f0000004000 r--s 00000000 fe:00 4711                       {}\n"
ADDRESSES = st.integers(0, 2**47)
PATHS = st.text(st.characters(exclude_characters="\n\0", codec="utf-8"), max_size=30)


@given(start=ADDRESSES, end=ADDRESSES, inode=st.integers(1, 2**63), path=PATHS)
def test_any_mapping_of_a_file(start: int, end: int, inode: int, path: str) -> None:
    text = f"{start:08x}-{end:08x} rw-s 0000a000 fe:10 {inode} {'':20}/{path}\n"
    [found] = parse_maps(text)
    assert (found.start, found.end) == (start, end)
    assert found.identity == (os.makedev(0xFE, 0x10), inode)
    assert found.path in (f"/{path}".replace("\\012", "\n"), "")


@given(text=st.text(max_size=300))
def test_any_text(text: str) -> None:
    assert all(one.path.startswith("/") or not one.path for one in parse_maps(text))
    assert locked_bytes(text, {0}) >= 0


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (LINE.format("/data/x"), "/data/x"),
        (LINE.format("/data/a b\\012c"), "/data/a b\nc"),
        (LINE.format("/data/x (deleted)"), ""),
    ],
)
def test_paths(line: str, path: str) -> None:
    assert [one.path for one in parse_maps(line)] == [path]


@pytest.mark.parametrize(
    "line",
    [
        "7f00-7f01 rw-p 00000000 00:00 0 \n",
        "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]\n",
        "7f00-7f01 rw-p 00000000 00:0f 12 anon_inode:[perf_event]\n",
    ],
)
def test_what_is_no_file(line: str) -> None:
    assert list(parse_maps(line)) == []


SMAPS = (
    LINE.format("/data/x")
    + "Size:                 16 kB\nLocked:                8 kB\n"
    + "7f0000010000-7f0000014000 r--s 00000000 fe:00 4711   /data/y\nLocked:              4 kB\n"
)


def test_locked_bytes_of_some_mappings() -> None:
    assert locked_bytes(SMAPS, {0x7F0000000000}) == 8192
    assert locked_bytes(SMAPS, {0x7F0000010000}) == 4096
    assert locked_bytes(SMAPS, {1}) == 0


def evicted(path: Path) -> EvictedFile:
    status = path.stat()
    return EvictedFile(path, status.st_dev, status.st_ino, "ext4")


def test_a_real_process_is_found_and_others_are_not(on_disk: Path) -> None:
    paths = [on_disk / name for name in ("mapped", "not mapped")]
    for path in paths:
        path.write_bytes(b"x" * 8192)
    with mapped(paths[0]) as process:
        found = holders_of([evicted(path) for path in paths])
    [[holder]] = found.by_file.values()
    assert (holder.pid, holder.name[:6]) == (process.pid, "python")
    assert holder.mappings[0].path == os.path.realpath(paths[0])


def fake_process(proc: Path, pid: int, maps: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / f"{pid}/maps").write_text(maps)
    (proc / f"{pid}/comm").write_text("postgres\n")


def test_a_mapping_is_known_by_its_path_where_the_device_differs(tmp_path: Path) -> None:
    """On btrfs and overlayfs the number in maps is that of another device."""
    path = tmp_path / "x"
    path.touch()
    fake_process(tmp_path / "proc", 7, LINE.format(path))
    fake_process(tmp_path / "proc", 8, LINE.format(f"{path} (deleted)"))
    found = holders_of([evicted(path)], tmp_path / "proc")
    assert [[one.pid for one in holders] for holders in found.by_file.values()] == [[7]]
    assert found.complete


def test_a_process_that_may_not_be_examined(tmp_path: Path) -> None:
    (tmp_path / "proc/7/maps").mkdir(parents=True)
    assert not holders_of([], tmp_path / "proc").complete


def test_a_process_that_has_ended_has_no_pages() -> None:
    pid = next(pid for pid in range(2**22 - 1, 0, -1) if identify(pid) is None)
    mapping = FileMapping(0, 4096, (0, 0), "/x")
    assert page_out(PageHolder(pid, "gone", (mapping,))) is None


def test_a_range_that_is_not_mapped_is_refused() -> None:
    mapping = FileMapping(0x1000, 0x2000, (0, 0), "/x")
    assert page_out(PageHolder(os.getpid(), "python", (mapping,))) == "Cannot allocate memory"
