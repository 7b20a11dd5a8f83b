"""Clients of a served volume: qemu-io for single requests, `qemu-img bench` for many."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagecage.agent.volume_server import VolumeServer
from pagecage.model.json_codec import Json
from pagecage.process import Completed, run
from tests.builders.waiting import wait_until

READ_FAILED = "read failed: Input/output error"
SECONDS = 60.0


def uri(server: VolumeServer) -> str:
    return f"nbd+unix:///?socket={server.data_socket}"


def volume_file(server: VolumeServer) -> Path:
    return server.data_socket.parent / "volume.raw"


def qemu_io(server: VolumeServer, *commands: str) -> Completed:
    """Run commands in order, and stop at none that fails."""
    words = [word for command in commands for word in ("-c", command)]
    return run(["qemu-io", "-f", "raw", *words, uri(server)], check=False, timeout_seconds=SECONDS)


def bench_argv(server: VolumeServer, requests: int, depth: int = 16, *options: str) -> list[str]:
    """Return the command that sends as many requests of 4 KiB, in the order of the volume."""
    load = ["-c", str(requests), "-d", str(depth), "-s", "4096", *options]
    return ["qemu-img", "bench", "-f", "raw", "-t", "writeback", *load, uri(server)]


def bench(server: VolumeServer, requests: int, depth: int = 16, *options: str) -> float:
    """Send requests and return the seconds that they took."""
    done = run(bench_argv(server, requests, depth, *options), timeout_seconds=SECONDS)
    return float(done.stdout.split("completed in ")[1].split()[0])


def account(server: VolumeServer) -> dict[str, Any]:
    return server.command({"account": True})


def wait_for_queue(server: VolumeServer, length: int = 1) -> None:
    """Return when at least as many requests wait."""
    wait_until(lambda: account(server)["volume_queue_length"] >= length)


def fixed_latency(latency_us: float) -> list[Json]:
    """Return a model's latencies where every request takes this time."""
    return [{"size_bytes": 4096, "quantiles": [[0.5, latency_us]]}]


def add(server: VolumeServer, **event: Any) -> None:
    """Add an event that begins now."""
    assert server.command({"event": event}) == {"added": True}


def iops_limit(per_second: float, **others: Any) -> Mapping[str, Any]:
    limit = {"layer": "volume", "scope": "both", "unit": "operations", "per_second": per_second}
    return {"limits": [limit], **others}
