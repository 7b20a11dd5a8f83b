"""Counters of the machine around a guest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pagecage.hosts.vm.vm_host import outer_sample
from pagecage.model.record_sections import Row

TICKS = os.sysconf("SC_CLK_TCK")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture(autouse=True)
def cpu(tmp_path: Path) -> None:
    words = f"cpu  {TICKS} 0 {2 * TICKS} 300 0 0 0 {TICKS // 2} 0 0\ncpu0 1 1 1\n"
    write(tmp_path / "proc/stat", words)


def sample(root: Path, pid: int = 7) -> Row:
    return outer_sample(pid, root, root)


def test_cpu_is_read_by_kind_in_seconds(tmp_path: Path) -> None:
    seconds = sample(tmp_path)["cpu_seconds"]
    assert (seconds["user"], seconds["system"], seconds["steal"]) == (1.0, 2.0, 0.5)


def test_pressure_is_none_where_it_is_not_offered(tmp_path: Path) -> None:
    assert sample(tmp_path)["pressure"] is None


def test_pressure_has_totals_in_microseconds(tmp_path: Path) -> None:
    line = "avg10=0.00 avg60=0.00 avg300=0.00 total="
    write(tmp_path / "proc/pressure/io", f"some {line}41\nfull {line}7\n")
    expected = {"cpu": {}, "io": {"some_us": 41, "full_us": 7}, "memory": {}}
    assert sample(tmp_path)["pressure"] == expected


def test_swap_is_read_in_bytes_where_the_kernel_has_it(tmp_path: Path) -> None:
    assert sample(tmp_path)["swap"] is None
    write(tmp_path / "proc/vmstat", "pswpin 2\npswpout 3\n")
    page = os.sysconf("SC_PAGE_SIZE")
    assert sample(tmp_path)["swap"] == {"in_bytes": 2 * page, "out_bytes": 3 * page}


def test_own_use_is_user_and_system_time(tmp_path: Path) -> None:
    fields = ["S", *["0"] * 10, str(3 * TICKS), str(TICKS), *["0"] * 30]
    write(tmp_path / "proc/7/stat", f"7 (qemu-system-x86) {' '.join(fields)}\n")
    assert sample(tmp_path)["qemu_cpu_seconds"] == 4.0
    assert sample(tmp_path, pid=8)["qemu_cpu_seconds"] is None


def test_a_partition_counts_as_its_whole_disk(tmp_path: Path) -> None:
    assert sample(tmp_path)["disk"] is None
    disk, device = tmp_path / "sys/devices/pci/block/sda", tmp_path.stat().st_dev
    write(disk / "stat", "10 1 80 5 20 2 160 9 0 12 14 0 0 0 0 0 0\n")
    write(disk / "sda1/stat", "1 0 8 0 0 0 0 0 0 0 0\n")
    write(disk / "sda1/partition", "1\n")
    numbers = tmp_path / "sys/dev/block"
    numbers.mkdir(parents=True)
    (numbers / f"{os.major(device)}:{os.minor(device)}").symlink_to(disk / "sda1")
    counters = sample(tmp_path)["disk"]
    assert (counters["name"], counters["reads"], counters["sectors_written"]) == ("sda", 10, 160)
