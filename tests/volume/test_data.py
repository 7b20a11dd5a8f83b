"""The bytes of a served volume, and what it counts."""

from __future__ import annotations

import filecmp
import os
from pathlib import Path

from pagecage.agent.volume_server import VolumeServer
from pagecage.process import run, spawn
from tests.volume.clients import (
    SECONDS,
    account,
    bench,
    bench_argv,
    fixed_latency,
    iops_limit,
    qemu_io,
    uri,
    volume_file,
)

MIB = 2**20


def test_bytes_arrive_whatever_the_order(server: VolumeServer, tmp_path: Path) -> None:
    """Sixteen requests of an image are in flight, each delayed by another time."""
    size = volume_file(server).stat().st_size
    image = tmp_path / "image.raw"
    image.write_bytes(os.urandom(size))
    latency = [{"size_bytes": 4096, "quantiles": [[0.0, 20], [1.0, 3000]]}]
    server.command({"configure": {"write_latency": latency, "read_latency": latency}})
    convert = ["qemu-img", "convert", "-f", "raw", "-O", "raw", "-n", "-W", "-m", "16"]
    run([*convert, image, uri(server)], timeout_seconds=SECONDS)
    assert filecmp.cmp(image, volume_file(server), shallow=False)
    same = run(["qemu-img", "compare", "-f", "raw", "-F", "raw", str(image), uri(server)])
    assert "Images are identical" in same.stdout
    counted = account(server)
    assert counted["total_write_bytes"] == size == counted["total_read_bytes"]
    assert counted["pcvolume"]["failed_ops"] == 0


def test_the_account_has_every_request(server: VolumeServer) -> None:
    both = [spawn(bench_argv(server, 3000, 8)), spawn(bench_argv(server, 2000, 4, "-w"))]
    assert [process.wait(SECONDS) for process in both] == [0, 0]
    counted = account(server)
    own = counted["pcvolume"]
    assert counted["total_read_ops"] == 3000 == own["charged_read_ops"]
    assert counted["total_write_ops"] == 2000 == own["charged_write_ops"]
    assert counted["total_write_bytes"] == 2000 * 4096
    assert counted["volume_queue_length"] == 0
    for name, operations in (("read", 3000), ("write", 2000)):
        assert sum(count for _, count in own[f"{name}_latency_us"]) == operations
        bins = counted[f"{name}_io_latency_histogram"]["bins"]
        assert sum(one["count"] for one in bins) == operations
    in_flight = own["in_flight_us"]
    assert abs(in_flight - counted["total_read_time"] - counted["total_write_time"]) <= 2


def test_discards_and_zeroes_free_space_and_are_not_limited(server: VolumeServer) -> None:
    file = volume_file(server)
    assert qemu_io(server, f"write -P 7 0 {8 * MIB}").ok
    written = file.stat().st_blocks
    server.command({"configure": iops_limit(1.0)})
    zeroes = (f"write -z -u {2 * MIB} {2 * MIB}", f"write -z {4 * MIB} {2 * MIB}")
    done = qemu_io(server, f"discard 0 {2 * MIB}", *zeroes)
    assert done.ok, done.stdout
    data = file.read_bytes()
    assert not any(data[: 6 * MIB])
    assert data[6 * MIB : 8 * MIB] == b"\7" * (2 * MIB)
    assert file.stat().st_blocks <= written - 4 * MIB // 512
    own = account(server)["pcvolume"]
    assert (own["trim_ops"], own["zero_ops"], own["charged_write_ops"]) == (1, 2, 0)


def test_flushes_are_counted(server: VolumeServer) -> None:
    assert qemu_io(server, "write 0 4k", "flush", "write -f 4k 4k").ok
    counted = account(server)
    assert counted["total_write_ops"] == 2
    assert counted["pcvolume"]["flush_ops"] >= 1


def test_a_rate_is_kept(server: VolumeServer) -> None:
    """Three thousand requests at 3,000 per second: the first starts at once, the last after 1 s."""
    model = iops_limit(3000.0, seed=5)
    server.command({"configure": model})
    seconds = bench(server, 3000)
    counted = account(server)
    assert 0.99 <= seconds < 10.0
    [limit] = counted["pcvolume"]["limits"]
    assert limit["used"] == 3000
    assert limit["level"] is None
    assert 0 < limit["exceeded_us"] <= seconds * 1e6


def test_a_latency_is_kept(server: VolumeServer) -> None:
    server.command({"configure": {"read_latency": fixed_latency(2000)}})
    bench(server, 200, 1)
    counted = account(server)
    assert min(upper for upper, _ in counted["pcvolume"]["read_latency_us"]) >= 2000
    assert counted["total_read_time"] / 200 < 3000
