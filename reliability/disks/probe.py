"""The limits of the disks under some directories, tested by the agent's own code on this machine.

    PYTHONPATH=agent.pyz python3 probe.py root|user DIRECTORY...

It prints a line of JSON per directory. Nothing here decides which disk is limited, how, or whether
that holds: this program only calls what a trial calls, and listens to fio beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from pagecage.agent.facts import find_systemd, read_facts
from pagecage.agent.limits.calibration import Calibrator
from pagecage.agent.storage import unlimited_writes
from pagecage.errors import PagecageError
from pagecage.linux.block_device import Disk, resolve_disk
from pagecage.linux.cgroup import ancestors
from pagecage.linux.cgroup_files import read_counters, read_limits
from pagecage.linux.child_processes import Interruption
from pagecage.linux.systemd import Systemd, unit_name
from pagecage.model.cage import IO_MAX_KEY, Cage, expected_read_back, limits_not_in_force
from pagecage.model.requirements import check_host
from pagecage.process import Completed, run
from pagecage.units import kernel_page_bytes

MIB = 1024 * 1024
LIMITS = {
    "IOReadBandwidthMax": 2_000_000,
    "IOReadIOPSMax": 100,
    "IOWriteBandwidthMax": 2_000_000,
    "IOWriteIOPSMax": 100,
    "MemoryMax": 32 * MIB,
}
READ_FROM_BYTES = 16 * MIB
BUFFERED = "buffered"
BUFFERED_BYTES = 8 * MIB
"""Four seconds at the limit, with a flush after each MiB."""
FLUSHED_SHARE = 7 / 8
"""The share of them on the disk when fio ends: it does not flush after its last write."""


class HeardCalibrator(Calibrator):
    """The agent's calibration, and what fio itself reports of it."""

    heard: Completed | None = None

    def _in_slice(
        self, name: str, cap: int, argv: list[str]
    ) -> tuple[Completed, dict[str, Any], float]:
        found = super()._in_slice(name, cap, argv)
        self.heard = found[0]
        return found


def main(who: str, directories: list[str]) -> None:
    for directory in directories:
        began = time.monotonic()
        try:
            found = probe(Path(directory), user=who == "user")
        except (PagecageError, OSError) as error:
            found = {"directory": directory, "failed": getattr(error, "message", str(error))}
        found["probe_seconds"] = round(time.monotonic() - began, 1)
        print(json.dumps(found), flush=True)


def probe(directory: Path, *, user: bool) -> dict[str, Any]:
    """Return what is known of one directory: its disk, the refusals, and each limit."""
    facts = read_facts(directory, user)
    found: dict[str, Any] = {
        "directory": str(directory),
        "uid": os.getuid(),
        "systemd": facts["systemd"]["version"],
        "kernel": facts["kernel"],
        "cpu_model": facts["cpu_model"],
        "disk": facts["disk"],
        "refused": [one.to_json() for one in check_host(facts)],
    }
    if found["refused"]:
        return found
    systemd, disk = find_systemd(user), resolve_disk(directory)
    found["refused_writes"] = list(unlimited_writes(iter([(disk, LIMITS)])))
    found |= {"node": disk.node, "stack_of_devices": disk.stack} | read_back(systemd, disk)
    try:
        return found | {"limits": test_limits(systemd, disk, directory)}
    finally:
        for path in directory.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def read_back(systemd: Systemd, disk: Disk) -> dict[str, Any]:
    """Return the limits that the kernel has after systemd was asked for them, and what is wrong."""
    unit, cage = unit_name("read_back"), Cage("read_back", LIMITS)
    try:
        cgroup = systemd.make(unit, cage, disk)
        held = read_limits(cgroup, disk.maj_min)
        above = {str(one): read_limits(one, disk.maj_min) for one in ancestors(cgroup)}
        io_max = (cgroup.directories[0] / "io.max").read_text().splitlines()
    finally:
        systemd.remove(unit)
    wrong = limits_not_in_force(expected_read_back(cage, kernel_page_bytes()), held, above)
    return {"read_back": held, "not_in_force": wrong, "io_max": io_max}


def test_limits(systemd: Systemd, disk: Disk, directory: Path) -> dict[str, Any]:
    """Drive as many limits at once as there are CPUs, each in a slice of its own.

    The limits are small and add up. More at once would starve some of the loads in a slow guest.
    """
    read_from = directory / "read.bin"
    read_from.write_bytes(os.urandom(READ_FROM_BYTES))
    os.sync()
    jobs = dict(_jobs(systemd, disk, directory, read_from))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        started = {name: pool.submit(_tried, name, job) for name, job in jobs.items()}
        return {name: future.result() for name, future in started.items()}


def _jobs(
    systemd: Systemd, disk: Disk, directory: Path, read_from: Path
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    for name, cap in LIMITS.items():
        folder = directory / name
        folder.mkdir(exist_ok=True)
        calibrator = HeardCalibrator(systemd, disk, folder, Interruption())
        yield name, partial(_calibrate, calibrator, name, cap, read_from)
    yield BUFFERED, lambda: _write_buffered(systemd, disk, directory)


def _tried(name: str, job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    began = time.monotonic()
    try:
        found = job()
    except (PagecageError, OSError) as error:
        found = {"error": getattr(error, "message", None) or str(error)}
    sys.stderr.write(f"  {name} took {time.monotonic() - began:.0f} s\n")
    return found


def _calibrate(calibrator: HeardCalibrator, name: str, cap: int, read_from: Path) -> dict[str, Any]:
    found = calibrator.calibrate(Cage(name, {name: cap}), read_from).get(name)
    heard = calibrator.heard
    rate = rate_of(heard.stdout, name) if heard and name in IO_MAX_KEY else None
    return {"cap": cap, "calibration": found and dict(found), "fio_rate": rate}


def rate_of(text: str, name: str) -> float | None:
    """Return the rate of fio's only job in the unit of a property; None without a report."""
    try:
        job: dict[str, Any] = json.loads(text[text.index("{") :])["jobs"][0]
        part = job["read" if "Read" in name else "write"]
        amount = part["total_ios" if "IOPS" in name else "io_bytes"]
        return float(amount) / (float(part["runtime"]) / 1000)
    except (ValueError, LookupError, ZeroDivisionError):
        return None


def _write_buffered(systemd: Systemd, disk: Disk, directory: Path) -> dict[str, Any]:
    """Write through the page cache under a limit on written bytes, with flushes in between."""
    name = "IOWriteBandwidthMax"
    cap, unit = LIMITS[name], unit_name(BUFFERED)
    argv = [
        *("fio", "--name=buffered", f"--filename={directory / 'buffered.bin'}", "--rw=write"),
        *("--bs=64k", f"--size={BUFFERED_BYTES}", "--fsync=16", "--ioengine=psync"),
        "--output-format=json",
    ]
    try:
        cgroup = systemd.make(unit, Cage(BUFFERED, {name: cap}), disk)
        done = run(systemd.enter_command(unit, argv), check=False, timeout_seconds=120)
        counted = read_counters(cgroup, "io.stat")["io.stat"] or {}
    finally:
        systemd.remove(unit)
    rate = rate_of(done.stdout, name)
    error = None if rate else (done.stderr.strip().splitlines() or ["no report"])[-1]
    on_disk = counted.get(disk.maj_min, {}).get("wbytes")
    return {"cap": cap, "fio_rate": rate, "slice_bytes": on_disk, "error": error}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
