"""Power losses: which writes a cut keeps, and a short campaign that sees a missing fsync(2)."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from pagecage.process import run
from reliability.disk_recorder import Cut, Disk, Loss, flush_entry, read_journal, write_entry
from reliability.power_loss import power_loss_section
from tests.builders.volumes import needs_fuse
from tests.tree import ROOT

SECTOR = 512


def disk_of(folder: Path, *entries: bytes) -> tuple[Disk, list[int]]:
    """Return a disk of eight empty sectors, and the end of each entry of its journal."""
    (folder / "base").write_bytes(bytes(8 * SECTOR))
    (folder / "journal").write_bytes(b"".join(entries))
    read = read_journal(folder / "journal")
    return Disk(folder / "base", read), [one.end for one in read]


def write(sector: int, letter: bytes, sectors: int = 1) -> bytes:
    return write_entry(sector * SECTOR, letter * SECTOR * sectors)


def sectors_after(disk: Disk, position: int, kept_share: float, seed: int = 0) -> str:
    image, _ = disk.after(Cut(1, position, 0, SECTOR, kept_share), random.Random(seed))
    return bytes(image[::SECTOR]).replace(b"\0", b".").decode()


def test_a_cut_keeps_what_a_finished_flush_covers(tmp_path: Path) -> None:
    first = write(0, b"a")
    disk, ends = disk_of(tmp_path, first, write(1, b"b"), flush_entry(len(first)), write(2, b"c"))
    assert sectors_after(disk, ends[1], kept_share=0) == "........"
    assert sectors_after(disk, ends[2], kept_share=0) == "a......."
    assert sectors_after(disk, ends[2], kept_share=1) == "ab......"
    assert sectors_after(disk, ends[3], kept_share=1) == "abc....."


def test_other_writes_are_lost_reordered_and_torn(tmp_path: Path) -> None:
    disk, ends = disk_of(tmp_path, write(0, b"a", 3), write(0, b"b", 3))
    found = {sectors_after(disk, ends[1], 0.7, seed)[:3] for seed in range(200)}
    assert {"...", "aaa", "bbb"} < found
    assert any(set("ab") <= set(one) for one in found)
    assert any("." in one and one != "..." for one in found)
    cut = Cut(1, ends[1], 0, SECTOR, 1.0)
    assert {disk.after(cut, random.Random(seed))[1].torn for seed in range(50)} == {0, 1, 2}
    assert disk.after(cut, random.Random(0))[1] == Loss(2, 2, 1)


@pytest.mark.slow
@needs_fuse
def test_no_reported_record_is_lost_and_without_fsync_they_are(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "reliability.power_loss", "--cuts", "10", "--runs", "1"]
    run([*argv, "--control-cuts", "3", "--results", tmp_path], cwd=ROOT, timeout_seconds=300)
    stored = json.loads((tmp_path / "power_loss.json").read_text())
    assert [cut["wrong"] for cut in stored["cuts"]] == [[]] * 10
    assert [cut["lost"] for cut in stored["cuts"]] == [0] * 10
    assert sum(cut["reports"] for cut in stored["cuts"])
    assert sum(cut["uncovered"] for cut in stored["cuts"])
    assert sum(cut["resumed"] for cut in stored["cuts"])
    assert stored["controls"]["records.jsonl"]["with_a_lost_record"]
    assert stored["controls"]["trials/"]["wrong"]
    [words, _, table] = list(power_loss_section(tmp_path))[1:]
    assert "**0 of 10 cuts lost a reported record; 0 had any forbidden consequence" in words
    assert "| nothing | 10 | 0 | 0 |" in table
