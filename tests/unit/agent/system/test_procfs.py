"""/proc: one disk's line, and the host's counters."""

from __future__ import annotations

from pathlib import Path

from pagecage.linux import procfs
from pagecage.linux.procfs import boot_id, parse_cpu, parse_diskstats, read_device, read_host

DISKSTATS = """\
 254       0 vda 100 1 2000 30 40 2 500 60 0 70 90 0 0 0 0 5 6 7
 254      16 vdb 7 0 56 8 0 0 0 0 1 9 10
   8       1 sda1 1 2
"""
STAT = "cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3\nintr 5\n"


def test_the_disks_own_line() -> None:
    row = parse_diskstats(DISKSTATS, "254:16")
    assert row is not None
    assert (row["reads"], row["sectors_read"], row["io_ticks"], row["weighted_io_ticks"]) == (
        7,
        56,
        9,
        10,
    )
    assert parse_diskstats(DISKSTATS, "254:0") == {**row, **parse_diskstats(DISKSTATS, "254:0")}  # type: ignore[dict-item]


def test_newer_kernels_have_more_columns_and_older_fewer() -> None:
    assert set(parse_diskstats(DISKSTATS, "254:0") or {}) == set(procfs.DISKSTATS_FIELDS)
    assert (parse_diskstats(DISKSTATS, "254:0") or {})["flushes"] == 5
    assert parse_diskstats(DISKSTATS, "8:1") == {"reads": 1, "reads_merged": 2}


def test_a_disk_that_is_not_listed_is_none() -> None:
    assert parse_diskstats(DISKSTATS, "254:1") is None
    assert parse_diskstats("", "254:0") is None
    assert parse_diskstats(DISKSTATS, "54:16") is None


def test_the_cpu_line_in_ticks() -> None:
    cpu = parse_cpu(STAT)
    assert cpu is not None
    assert (cpu["user"], cpu["steal"], cpu["guest_nice"]) == (10, 80, 100)
    assert cpu["ticks_per_second"] > 0
    assert parse_cpu("intr 5\n") is None


def test_a_fake_proc(tmp_path: Path) -> None:
    (tmp_path / "diskstats").write_text(DISKSTATS)
    (tmp_path / "stat").write_text(STAT)
    assert read_device("254:16", tmp_path) == parse_diskstats(DISKSTATS, "254:16")
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/cpu").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=17\n")
    waits = {"some": {"avg10": 0.0, "avg60": 0.0, "avg300": 0.0, "total": 17.0}}
    assert read_host(tmp_path) == {
        "vmstat": None,
        "meminfo": None,
        "stat": parse_cpu(STAT),
        "cpu_pressure": waits,
    }
    assert boot_id(tmp_path) is None


def test_this_machines_own() -> None:
    host = read_host()
    assert host["vmstat"]["pgmajfault"] >= 0
    assert host["meminfo"]["MemTotal"] > 0
    assert host["stat"]["user"] > 0
    assert len(boot_id() or "") == 36
