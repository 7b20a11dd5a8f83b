"""Settings of CPUs, priorities and huge pages, as the kernel's files tell them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pagecage.linux.procfs import cgroup_settings, machine_settings, process_settings


def test_governors_frequencies_and_huge_pages(tmp_path: Path) -> None:
    for number, (present, governor) in enumerate(
        ((900_000, "powersave"), (3_100_000, "performance"))
    ):
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
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = process_settings(process.pid)
        process.communicate(b"\n")
    assert found == {"affinity": "0", "nice": min(19, os.nice(0) + 7), "io_priority": "none 0"}
    assert process_settings(process.pid) == {}
