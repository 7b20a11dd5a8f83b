"""Simulated volumes in the guest: as its data disk, and attached by the guest's own kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.hosts.agent_package import agent_path, make_agent_package
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.process import run
from pagecage.verdicts.volume_account import volume_account
from tests.builders.command_line import CommandLine, verdicts
from tests.builders.known import known
from tests.tree import ROOT

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.timeout(600)]
READS = 600
READER = """
import os, random, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY)
pages = os.fstat(descriptor).st_size // 4096
for page in random.Random(1).sample(range(pages), int(sys.argv[2])):
    os.pread(descriptor, 4096, 4096 * page)
"""


def test_a_replay_on_a_volume_of_the_catalogue(tmp_path: Path) -> None:
    """gp3 serves one read of a page at a time by its latency, and not by its IOPS."""
    data, reader = tmp_path / "data.bin", tmp_path / "reader.py"
    data.write_bytes(bytes(16 * 2**20))
    reader.write_text(READER)
    made = CommandLine(tmp_path / "runs", "replay-python3")
    made.succeed(
        *("replay", "aws-gp3", "--size", "500GiB", "--enforced-by", "volume", "--no-control"),
        *("--host", "vm", "--dilate", "4", "--copy", str(data), "--copy", str(reader)),
        *("--cold", str(data), "--", "python3", str(reader), str(data), str(READS)),
    )
    [record] = made.records()
    assert known(volume_account(record)).operations >= READS * 0.9, (
        "a few pages come with a neighbour's read-ahead"
    )
    account = known(record.cage.external)["account"]
    mean_us = account["total_read_time"] / account["total_read_ops"]
    assert 4 * 440 <= mean_us <= 4 * 720, "between the published p50 and p95, four times longer"
    words = {limit.property: limit.verdict for limit in verdicts(made, record).limits}
    assert words["IOReadIOPSMax"] == "enforced"
    assert known(record.measured).seconds > READS * 4 * 440e-6


LOCAL = """
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from pagecage.agent import volume_server
from pagecage.agent.mounted_volume import mount_volume, unmount_volume
from pagecage.agent.limits.calibration import SimulatedVolume
from pagecage.model.cage import Cage

spool, data = Path(sys.argv[2]), Path(sys.argv[3])
volume_server.PATHS = tuple(path for path in volume_server.PATHS if path.name == sys.argv[4])
mounted = mount_volume(64 << 20, data, spool)
volume = SimulatedVolume(mounted.server.command, mounted.path)
file = mounted.mount_point / "file"
file.write_bytes(os.urandom(4 << 20))
os.sync()
held = volume.enforce(Cage("c", {"IOReadIOPSMax": 100}, enforced_by="volume"), 1)
descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT)
import mmap
page = mmap.mmap(-1, 4096)
begin = time.monotonic()
for number in range(200):
    os.preadv(descriptor, [page], 4096 * number)
seconds = time.monotonic() - begin
account = volume.account()
os.close(descriptor)
node = mounted.disk.node
removed = unmount_volume(spool)
mounted.server.end()
left = sorted(path.name for path in (spool / "volume").iterdir())
print(json.dumps({"seconds": seconds, "node": node, "removed": removed, "left": left,
                  "used": account["pcvolume"]["limits"][0]["used"], "held": held.to_json()}))
"""


@pytest.fixture
def spool(host: VmHost) -> Iterator[str]:
    """Return a folder in the guest's memory with the agent and the servers of volumes."""
    folder = f"{host.spool_dir}/volume-test"
    package = make_agent_package(ROOT)
    host.push([package.agent], folder)
    host.push(package.volume_files, f"{folder}/bin")
    yield folder
    run(host.command(["rm", "-rf", folder]))


@pytest.mark.parametrize(
    ("path", "device", "left"),
    [
        ("fuse-loop", "loop", ["mounted", "served", "server.log"]),
        ("nbd", "nbd", ["mounted", "server.log"]),
    ],
)
def test_the_kernel_attaches_a_volume_and_lets_it_go(
    host: VmHost, spool: str, path: str, device: str, left: list[str]
) -> None:
    argv = ["python3", "-c", LOCAL, agent_path(spool), spool, host.data_dir, path]
    found = json.loads(run(host.command(argv), timeout_seconds=300).stdout.splitlines()[-1])
    assert found["node"].startswith(f"/dev/{device}")
    assert found["held"]["path"]["kind"] == path
    # The last read is answered when its share of the limit begins, so up to one is still in use.
    assert 199 <= found["used"] <= 200
    assert found["seconds"] > 1.9, "200 reads at 100 per second"
    assert found["held"]["read_back"] == {"IOReadIOPSMax": 100}
    name = found["node"].removeprefix("/dev/")
    assert found["removed"][:2] == [f"{spool}/volume/mounted", name]
    assert found["left"] == left
