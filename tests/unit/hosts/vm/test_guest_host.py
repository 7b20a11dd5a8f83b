import os
from pathlib import Path

from pagecage.hosts.vm.guest_host import cpu_seconds, disk_counters, pressure, process_cpu_seconds

TICKS = os.sysconf("SC_CLK_TCK")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cpu_is_read_by_kind_in_seconds(tmp_path: Path) -> None:
    write(
        tmp_path / "proc/stat",
        f"cpu  {TICKS} 0 {2 * TICKS} 300 0 0 0 {TICKS // 2} 0 0\ncpu0 1 1 1\n",
    )
    seconds = cpu_seconds(tmp_path)
    assert (seconds["user"], seconds["system"], seconds["steal"]) == (1.0, 2.0, 0.5)


def test_pressure_is_none_where_it_is_not_offered(tmp_path: Path) -> None:
    assert pressure(tmp_path) is None


def test_pressure_has_totals_in_microseconds(tmp_path: Path) -> None:
    line = "avg10=0.00 avg60=0.00 avg300=0.00 total="
    write(tmp_path / "proc/pressure/io", f"some {line}41\nfull {line}7\n")
    assert pressure(tmp_path) == {"cpu": {}, "io": {"some_us": 41, "full_us": 7}, "memory": {}}


def test_own_use_is_user_and_system_time(tmp_path: Path) -> None:
    fields = ["S", *["0"] * 10, str(3 * TICKS), str(TICKS), *["0"] * 30]
    write(tmp_path / "proc/7/stat", f"7 (qemu-system-x86) {' '.join(fields)}\n")
    assert process_cpu_seconds(7, tmp_path) == 4.0
    assert process_cpu_seconds(8, tmp_path) is None


def test_a_partition_counts_as_its_whole_disk(tmp_path: Path) -> None:
    disk = tmp_path / "sys/devices/pci/block/sda"
    write(disk / "stat", "10 1 80 5 20 2 160 9 0 12 14 0 0 0 0 0 0\n")
    write(disk / "sda1/stat", "1 0 8 0 0 0 0 0 0 0 0\n")
    write(disk / "sda1/partition", "1\n")
    numbers = tmp_path / "sys/dev/block"
    numbers.mkdir(parents=True)
    (numbers / "8:1").symlink_to(disk / "sda1")
    counters = disk_counters(os.makedev(8, 1), tmp_path)
    assert counters is not None
    assert (counters["name"], counters["reads"], counters["sectors_written"]) == ("sda", 10, 160)
    assert disk_counters(os.makedev(0, 42), tmp_path) is None
