"""Verify, as the single file, on a reader under limits that this machine's kernel holds."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.hosts.agent_package import write_verify_package
from pagecage.linux.block_device import resolve_disk
from pagecage.linux.cgroup import Cgroup
from pagecage.linux.cgroup_files import read_counters
from pagecage.linux.cgroupfs import Cgroupfs
from pagecage.model.cage import Cage
from pagecage.model.json_codec import Json
from pagecage.process import Completed, run, spawn
from pagecage.units import MIB
from tests.builders.waiting import wait_until

pytestmark = pytest.mark.limits
UNIT, IOPS = "pagecage-verified.1.slice", 200
LIMITS = {"IOReadIOPSMax": IOPS, "MemoryMax": 64 * MIB, "MemorySwapMax": 0}
READ = "while :; do dd if={} of=/dev/null bs=4k iflag=direct 2>/dev/null; done"


@pytest.fixture(scope="module")
def data(checkout: Path) -> Iterator[Path]:
    """A file on the checkout's disk."""
    path = checkout / f"build/tests/verified-{os.getpid()}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(16 * MIB))
    yield path
    path.unlink()


@pytest.fixture(scope="module")
def reader(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Cgroup]]:
    """A process that reads past the page cache, and its group."""
    maker, disk = Cgroupfs(tmp_path_factory.mktemp("spool")), resolve_disk(data.parent)
    group = maker.make(UNIT, Cage("", LIMITS), disk)
    process = spawn(maker.enter_command(UNIT, ["sh", "-c", READ.format(data)]))

    def has_read() -> bool:
        counted = read_counters(group, "io.stat")["io.stat"] or {}
        return bool(counted.get(disk.maj_min, {}).get("rios", 0) > IOPS)

    try:
        wait_until(has_read)
        yield process.pid, group
    finally:
        maker.remove(UNIT)
        process.wait()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_verify_package(tmp_path_factory.mktemp("verify"))


def start(program: Path, pid: int, *words: str) -> Completed:
    argv = [sys.executable, "-I", "-S", str(program), "--pid", str(pid), *words]
    return run(argv, check=False, env={"PATH": os.defpath})


def test_limits_the_binding_one_and_the_disk(
    program: Path, reader: tuple[int, Cgroup], data: Path
) -> None:
    expected = [f"--expect=IOReadIOPSMax={data} {IOPS}", "--expect=MemoryMax=64M"]
    done = start(program, reader[0], "--time", "3s", "--json", *expected)
    found: Json = json.loads(done.stdout)
    print(json.dumps(found, indent=1))
    assert (done.status, {one["state"] for one in found["requested"]}) == (0, {"in_force"})
    disk = resolve_disk(data.parent)
    effective = {one["name"]: one for one in found["limits"] if one["effective"]}
    assert {name: effective[name]["value"] for name in LIMITS} == LIMITS
    assert effective["IOReadIOPSMax"]["disk"] == disk.name
    assert effective["IOReadIOPSMax"]["maj_min"] == disk.maj_min
    assert found["io_bytes"][disk.maj_min] > 4096 * IOPS
    uses = {one["name"]: one for one in found["bound"]}
    assert uses["IOReadIOPSMax"]["used_share"] == pytest.approx(1, abs=0.1)
    assert uses["IOReadIOPSMax"]["bound_seconds"] > 0.8 * found["seconds"]
    assert {one["name"] for one in found["bound"] if one["bound_seconds"]} == {"IOReadIOPSMax"}


def test_each_limit_is_named_with_a_file_that_has_it(
    program: Path, reader: tuple[int, Cgroup]
) -> None:
    found = json.loads(start(program, reader[0], "--time", "0s", "--json").stdout)
    for limit in found["limits"]:
        assert Path(limit["file"]).read_text().strip()
        if limit["name"] == "IOReadIOPSMax":
            assert f"{IOPS}" in Path(limit["file"]).read_text()
    places = {str(directory) for directory in reader[1].directories}
    own = {one["name"] for one in found["limits"] if str(Path(one["file"]).parent) in places}
    assert own >= LIMITS.keys()
    page = start(program, reader[0], "--time", "0s").stdout
    assert "IOReadIOPSMax" in page


def test_a_lost_limit_is_seen(program: Path, reader: tuple[int, Cgroup], data: Path) -> None:
    done = start(program, reader[0], "--time", "0s", f"--expect=IOWriteIOPSMax={data} 5")
    assert done.status == 5
    assert "IOWriteIOPSMax is not in force as asked for." in done.stdout
