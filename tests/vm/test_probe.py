"""The probe under known limits: every engine reports the limits that were set."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pagecage.cli.probe import PROGRAM
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.importers.formats import NamedText, import_files
from pagecage.importers.result import Rounding, Selection
from pagecage.process import run

pytestmark = [pytest.mark.vm, pytest.mark.slow]
IOPS, BYTES = 500, 20_000_000
SLICE = "pagecage-probe.slice"
# The sustained phase begins after two sequential phases and seven depths, at 0.39 of the time, and
# takes 0.30 of it.
SECONDS, DROP_AT_SECONDS, SUSTAINED_FROM_SECONDS = 60, 32, 23.4
PLACE = "/dev/shm/probe"
"""Not below the spool, which belongs to root alone: an ordinary user runs the program."""


@pytest.fixture(scope="module", autouse=True)
def program(host: VmHost) -> None:
    host.push([PROGRAM], PLACE)
    assert run(host.command(["chmod", "755", PLACE]), check=False).ok


def in_slice(
    host: VmHost, limits: dict[str, int], arguments: str, meanwhile: str = "true"
) -> dict[str, Any]:
    """Return the probe's JSON, measured as an ordinary user under these limits."""
    words = " ".join(f"'{name}=/data {value}'" for name, value in limits.items())
    script = f"""
        set -e
        install -d -o bench /data/probed
        systemctl set-property --runtime {SLICE} {words}
        systemctl start {SLICE}
        ({meanwhile}) &
        systemd-run --quiet --collect --wait --pipe --slice={SLICE} --uid=bench \
            {PLACE}/pcprobe /data/probed --yes --size 64MiB {arguments}
        test -z "$(ls -A /data/probed)"
        wait
        systemctl stop {SLICE}
        systemctl revert {SLICE} > /dev/null 2>&1
    """
    done = run(host.command(["sh", "-c", script]), check=False, timeout_seconds=300)
    assert done.ok, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


LIMITS = {
    "IOReadBandwidthMax": BYTES,
    "IOWriteBandwidthMax": BYTES,
    "IOReadIOPSMax": IOPS,
    "IOWriteIOPSMax": IOPS,
}


@pytest.mark.parametrize(
    "engine",
    ["io_uring", *(pytest.param(name, marks=pytest.mark.long) for name in ("threads", "fio"))],
)
def test_it_reports_the_limits_that_are_in_force(host: VmHost, engine: str) -> None:
    found = in_slice(host, LIMITS, f"--seconds 30 --engine {engine}")
    summary = found["summary"]
    assert found["engine"]["name"] == engine
    assert found["complete"]
    assert summary["random_read_ios_per_second"] == pytest.approx(IOPS, rel=0.03)
    assert summary["random_write_ios_per_second"] == pytest.approx(IOPS, rel=0.03)
    assert summary["sequential_read_bytes_per_second"] == pytest.approx(BYTES, rel=0.05)
    assert summary["sequential_write_bytes_per_second"] == pytest.approx(BYTES, rel=0.05)
    assert [phase["burst"] for phase in found["phases"] if phase["burst"]] == []
    assert found["cgroup"]["version"] == 2
    assert found["cgroup"]["io"] == {"rbps": BYTES, "wbps": BYTES, "riops": IOPS, "wiops": IOPS}
    assert found["storage"]["filesystem"] == "ext4"


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "name", "reason"), [("own", "threads", "no io_uring"), ("fio", "fio", "libaio")]
)
def test_it_works_without_io_uring(host: VmHost, engine: str, name: str, reason: str) -> None:
    run(host.command(["sysctl", "-q", "-w", "kernel.io_uring_disabled=2"]))
    try:
        found = in_slice(host, LIMITS, f"--seconds 15 --engine {engine}")
        words = ["--yes", "--size", "16MiB", "--engine", "io_uring"]
        refused = run(host.command([f"{PLACE}/pcprobe", "/data", *words]), check=False)
    finally:
        run(host.command(["sysctl", "-q", "-w", "kernel.io_uring_disabled=0"]))
    assert (found["engine"]["name"], reason in found["engine"]["reason"]) == (name, True)
    assert found["summary"]["random_read_ios_per_second"] == pytest.approx(IOPS, rel=0.03)
    assert (refused.status, "no io_uring" in refused.stderr) == (77, True)


@pytest.mark.long
def test_its_json_becomes_the_cage_that_it_ran_in(host: VmHost) -> None:
    found = in_slice(host, LIMITS, "--seconds 30")
    file = NamedText("probe.json", json.dumps(found))
    cage = import_files([file], Selection(), Rounding()).cage()
    assert {key: cage[key] for key in LIMITS} == {
        "IOReadBandwidthMax": "20MB",
        "IOWriteBandwidthMax": "20MB",
        "IOReadIOPSMax": IOPS,
        "IOWriteIOPSMax": IOPS,
    }


@pytest.mark.long
def test_a_bucket_that_runs_dry_is_found(host: VmHost) -> None:
    """The cap falls from 1,000 to 200 reads per second in the long phase, as without credits."""
    drop = (
        f"sleep {DROP_AT_SECONDS}; systemctl set-property --runtime {SLICE} 'IOReadIOPSMax=/data"
        " 200'"
    )
    found = in_slice(host, {"IOReadIOPSMax": 1000}, f"--seconds {SECONDS} --engine own", drop)
    (sustained,) = [phase for phase in found["phases"] if phase["name"] == "random_read_sustained"]
    burst = sustained["burst"]
    assert burst["burst_ios_per_second"] == pytest.approx(1000, rel=0.03)
    assert burst["base_ios_per_second"] == pytest.approx(200, rel=0.05)
    assert burst["seconds"] == pytest.approx(DROP_AT_SECONDS - SUSTAINED_FROM_SECONDS, abs=2)
    assert found["summary"]["random_read_ios_per_second"] == burst["base_ios_per_second"]
    file = NamedText("probe.json", json.dumps(found))
    cage = import_files([file], Selection(), Rounding()).cage()
    assert (cage["IOReadIOPSMax"], cage["burst"]["iops"]["rate"]) == (200, 1000)
    assert cage["burst"]["iops"]["credits"] == pytest.approx(800 * burst["seconds"], rel=0.1)
