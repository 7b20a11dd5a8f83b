"""/proc: one disk's line, and the host's counters."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.facts import is_emulated
from pagecage.linux import procfs
from pagecage.linux.procfs import (
    boot_id,
    cgroup_settings,
    cpu_model,
    idle_pageout_seconds,
    listens,
    machine_settings,
    parse_cpu,
    parse_diskstats,
    parse_flat_keyed,
    parse_limits,
    parse_listening,
    parse_meminfo,
    parse_nested_keyed,
    parse_pressure,
    process_settings,
    read_device,
    read_host,
    read_text,
)
from pagecage.process import PIPE, spawn
from tests.builders.known import known

DISKSTATS = """\
 254       0 vda 100 1 2000 30 40 2 500 60 0 70 90 0 0 0 0 5 6 7
 254      16 vdb 7 0 56 8 0 0 0 0 1 9 10
   8       1 sda1 1 2
"""
STAT = "cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3\nintr 5\n"


def test_the_disks_own_line() -> None:
    row = known(parse_diskstats(DISKSTATS, "254:16"))
    keys = ("reads", "sectors_read", "io_ticks", "weighted_io_ticks")
    assert [row[key] for key in keys] == [7, 56, 9, 10]
    other = known(parse_diskstats(DISKSTATS, "254:0"))
    assert other == {**row, **other}


def test_newer_kernels_have_more_columns_and_older_fewer() -> None:
    newest = known(parse_diskstats(DISKSTATS, "254:0"))
    assert set(newest) == set(procfs.DISKSTATS_FIELDS)
    assert newest["flushes"] == 5
    assert parse_diskstats(DISKSTATS, "8:1") == {"reads": 1, "reads_merged": 2}


def test_a_disk_that_is_not_listed_is_none() -> None:
    assert parse_diskstats(DISKSTATS, "254:1") is None
    assert parse_diskstats("", "254:0") is None
    assert parse_diskstats(DISKSTATS, "54:16") is None


def test_the_cpu_line_in_ticks() -> None:
    cpu = known(parse_cpu(STAT))
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
    absent = {"vmstat": None, "meminfo": None}
    assert read_host(tmp_path) == {**absent, "stat": parse_cpu(STAT), "cpu_pressure": waits}
    assert boot_id(tmp_path) is None


def test_this_machines_own() -> None:
    host = read_host()
    assert host["vmstat"]["pgmajfault"] >= 0
    assert host["meminfo"]["MemTotal"] > 0
    assert host["stat"]["user"] > 0
    assert len(boot_id() or "") == 36


keys = st.from_regex(r"[a-z][a-z0-9_.]{0,15}", fullmatch=True)
devices = st.builds(
    lambda major, minor: f"{major}:{minor}", st.integers(0, 4095), st.integers(0, 999)
)
counts = st.integers(0, 2**64 - 1)


@given(st.dictionaries(keys, counts | st.integers(-(2**31), -1)))
def test_flat_keyed_round_trip(table: dict[str, int]) -> None:
    assert parse_flat_keyed("".join(f"{key} {value}\n" for key, value in table.items())) == table


def test_flat_keyed_skips_values_that_are_not_numbers() -> None:
    found = parse_flat_keyed("anon 5\nhigh max\nlow\n\nthree words here\nfile 7")
    assert found == {"anon": 5, "file": 7}


def lines_of(table: Mapping[str, Mapping[str, int | str]]) -> str:
    return "\n".join(
        " ".join([device, *(f"{key}={value}" for key, value in row.items())])
        for device, row in table.items()
    )


@given(st.dictionaries(devices, st.dictionaries(keys, counts)))
def test_nested_keyed_round_trip(table: dict[str, dict[str, int]]) -> None:
    assert parse_nested_keyed(lines_of(table)) == table


def test_a_device_that_was_never_busy_is_a_bare_key() -> None:
    found = parse_nested_keyed("8:0\n254:16 rbytes=5 rios=1\n\n")
    assert found == {"8:0": {}, "254:16": {"rbytes": 5, "rios": 1}}


IO_LIMITS = st.dictionaries(st.sampled_from(["rbps", "wbps", "riops", "wiops"]), counts)


@given(st.dictionaries(devices, IO_LIMITS))
def test_limits_are_text(table: dict[str, dict[str, int]]) -> None:
    wanted = {
        device: {**{key: str(value) for key, value in row.items()}, "idle": "max"}
        for device, row in table.items()
    }
    assert parse_limits(lines_of(wanted)) == wanted


@given(st.lists(st.floats(0, 100), min_size=3, max_size=3), st.integers(0, 2**53))
def test_pressure_round_trip(averages: list[float], total: int) -> None:
    rounded = [round(average, 2) for average in averages]
    row = dict(zip(("avg10", "avg60", "avg300"), rounded, strict=True))
    line = " ".join([*(f"{key}={value:.2f}" for key, value in row.items()), f"total={total}"])
    expected = {**row, "total": total}
    assert parse_pressure(f"some {line}\nfull {line}\n") == {"some": expected, "full": expected}


def test_pressure_that_is_switched_off_is_nothing() -> None:
    assert parse_pressure("") == {}


def test_meminfo_with_and_without_units() -> None:
    text = "MemTotal:        2030564 kB\nHugePages_Total:       0\nSwapTotal:\nnonsense\n"
    assert parse_meminfo(text) == {"MemTotal": 2030564, "HugePages_Total": 0}


@given(st.text(max_size=200))
def test_no_text_crashes_a_counter(text: str) -> None:
    parse_flat_keyed(text)
    parse_nested_keyed(text)
    parse_limits(text)


def test_a_missing_file_is_not_zero(tmp_path: Path) -> None:
    assert read_text(tmp_path / "memory.peak") is None
    assert read_text(tmp_path) is None
    (tmp_path / "empty").touch()
    assert read_text(tmp_path / "empty") == ""


HEAD = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout"
    " inode\n"
)
states = st.integers(1, 12)
sockets = st.lists(st.tuples(st.integers(0, 65535), states), max_size=8)


def line(number: int, port: int, state: int) -> str:
    zeros = "00000000:00000000 00:00000000 00000000"
    return f"   {number}: 0100007F:{port:04X} 00000000:0000 {state:02X} {zeros} 0 0 1 1\n"


@given(sockets)
def test_only_listening_sockets_count(found: list[tuple[int, int]]) -> None:
    text = HEAD + "".join(line(number, *one) for number, one in enumerate(found))
    assert parse_listening(text) == {port for port, state in found if state == 10}


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert all(port >= 0 for port in parse_listening(text) if port >= 0)


def test_addresses_of_version_6() -> None:
    address = "00000000000000000000000000000000"
    assert parse_listening(f"{HEAD}   0: {address}:1F90 {address}:0000 0A 0 0\n") == {8080}


def test_a_socket_of_this_process_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listens(port, ("self",))
        assert listens(port, (os.getpid(),))
    assert not listens(port, ("self",))


def test_an_exited_process_has_no_sockets() -> None:
    assert not listens(80, (2**22 + 1,))


X86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) @ 2.60GHz\n\n"
EMULATED_X86 = "QEMU TCG CPU version 2.5+"
ARM = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm
CPU implementer\t: {}
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: {}
CPU revision\t: 1

processor\t: 1
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (X86, "Intel(R) Xeon(R) @ 2.60GHz"),
        (X86.replace("Intel(R) Xeon(R) @ 2.60GHz", EMULATED_X86), EMULATED_X86),
        (ARM.format("0x41", "0xd0c"), "Neoverse-N1 r3p1"),
        (ARM.format("0x61", "0x022"), "implementer 0x61 part 0x022 r3p1"),
        (ARM.format("0x00", "0x051"), "QEMU TCG CPU (aarch64 max)"),
        ("processor\t: 0\n", None),
        ("", None),
    ],
)
def test_a_processor_has_the_name_that_its_kernel_states(text: str, name: str | None) -> None:
    assert cpu_model(text) == name


def test_an_emulated_processor_is_known_by_its_name() -> None:
    assert is_emulated({"cpu_model": cpu_model(ARM.format("0x00", "0x051"))})
    assert not is_emulated({"cpu_model": cpu_model(ARM.format("0x41", "0xd0c"))})
    assert not is_emulated({"cpu_model": None})


def test_governors_frequencies_and_huge_pages(tmp_path: Path) -> None:
    cpus = ((900_000, "powersave"), (3_100_000, "performance"))
    for number, (present, governor) in enumerate(cpus):
        policy = tmp_path / f"devices/system/cpu/cpu{number}/cpufreq"
        policy.mkdir(parents=True)
        (policy / "scaling_governor").write_text(f"{governor}\n")
        (policy / "scaling_cur_freq").write_text(f"{present}\n")
        (policy / "scaling_max_freq").write_text("3200000\n")
    (tmp_path / "devices/system/cpu/intel_pstate").mkdir()
    (tmp_path / "devices/system/cpu/intel_pstate/no_turbo").write_text("1\n")
    pages = tmp_path / "kernel/mm/transparent_hugepage"
    pages.mkdir(parents=True)
    (pages / "enabled").write_text("always [madvise] never\n")
    (tmp_path / "meminfo").write_text(
        "MemTotal: 8 kB\nHugePages_Total: 5\nHugePages_Free: 2\nHugepagesize: 2048 kB\n"
    )
    assert machine_settings(tmp_path, tmp_path) == {
        "governors": ["performance", "powersave"],
        "frequencies_khz": [900_000, 3_100_000],
        "most_khz": [3_200_000, 3_200_000],
        "boost": "1",
        "transparent_hugepages": "madvise",
        "hugepages": {"total": 5, "used": 3, "page_bytes": 2 << 20},
    }


def write_tree(top: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(f"{text}\n")


def kdamond(number: int, state: str, action: str, age: int) -> dict[str, str]:
    top = f"kernel/mm/damon/admin/kdamonds/{number}"
    scheme = f"{top}/contexts/0/schemes/0"
    return {
        f"{top}/state": state,
        f"{top}/contexts/0/monitoring_attrs/intervals/aggr_us": "5000000",
        f"{scheme}/action": action,
        f"{scheme}/access_pattern/age/min": str(age),
    }


@pytest.mark.parametrize(
    ("files", "seconds"),
    [
        (kdamond(0, "on", "pageout", 12), 60.0),
        (kdamond(0, "off", "pageout", 12), None),
        (kdamond(0, "on", "stat", 12), None),
        (kdamond(0, "on", "pageout", 12) | kdamond(1, "on", "pageout", 6), 30.0),
        ({"module/damon_reclaim/parameters/enabled": "Y"}, None),
        (
            {
                "module/damon_reclaim/parameters/enabled": "Y",
                "module/damon_reclaim/parameters/min_age": "120000000",
            },
            120.0,
        ),
    ],
)
def test_idle_pages_are_reclaimed_by_damon(
    tmp_path: Path, files: dict[str, str], seconds: float | None
) -> None:
    write_tree(tmp_path, files)
    assert idle_pageout_seconds(tmp_path) == seconds
    found = {} if seconds is None else {"idle_pageout_seconds": seconds}
    assert machine_settings(tmp_path, tmp_path) == found


def test_a_machine_without_such_settings_has_no_keys(tmp_path: Path) -> None:
    assert machine_settings(tmp_path, tmp_path) == {}
    assert cgroup_settings([tmp_path]) == {}


def test_cpus_and_weights_of_a_cgroup(tmp_path: Path) -> None:
    (tmp_path / "cpuset.cpus.effective").write_text("0-1\n")
    (tmp_path / "io.weight").write_text("default 100\n")
    assert cgroup_settings([tmp_path]) == {"cpuset": "0-1", "io_weight": "default 100"}
    (old := tmp_path / "cpu").mkdir()
    (old / "cpu.shares").write_text("512\n")
    assert cgroup_settings([old]) == {"cpu_weight": "512"}
    assert set(cgroup_settings([tmp_path, old])) == {"cpuset", "cpu_weight", "io_weight"}


def test_settings_of_a_process_that_changes_its_own() -> None:
    code = "import os; os.sched_setaffinity(0, {0}); os.nice(7); print(flush=True); input()"
    with spawn([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE) as process:
        known(process.stdout).readline()
        found = process_settings(process.pid)
        process.communicate(b"\n")
    assert found == {"affinity": "0", "nice": min(19, os.nice(0) + 7), "io_priority": "none 0"}
    assert process_settings(process.pid) == {}
