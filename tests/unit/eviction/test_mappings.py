"""Processes that map a file, in the kernel's own text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.linux.page_cache import (
    EvictedFile,
    FileMapping,
    PageHolder,
    holders_of,
    locked_bytes,
    page_out,
    parse_maps,
)
from pagecage.process import identify
from tests.builders.mapped import mapped

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
