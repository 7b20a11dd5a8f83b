"""Commands to a served volume: models, events, refusals, and clients that hang."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from pagecage.agent.volume_server import VolumeServer, send_command
from pagecage.errors import HostError
from pagecage.process import spawn
from tests.volume.clients import (
    READ_FAILED,
    SECONDS,
    account,
    add,
    bench,
    bench_argv,
    fixed_latency,
    iops_limit,
    qemu_io,
    volume_file,
    wait_for_queue,
)

EMPTY: dict[str, Any] = {
    "limits": [],
    "accounting": {"io_size_bytes": None, "merged": False},
    "read_latency": [],
    "write_latency": [],
    "restore": None,
    "events": [],
    "seed": 0,
}
FULL: dict[str, Any] = {
    "limits": [
        {
            "layer": "volume",
            "scope": "both",
            "unit": "operations",
            "per_second": 3000.0,
            "credits": {"burst_per_second": 6000.0, "capacity": 1e6, "start": 5e5},
        },
        {
            "layer": "instance",
            "scope": "write",
            "unit": "bytes",
            "per_second": 125e6,
            "credits": None,
        },
    ],
    "accounting": {"io_size_bytes": 262_144, "merged": True},
    "read_latency": [{"size_bytes": 4096, "quantiles": [[0.5, 440.0], [0.999, 5000.0]]}],
    "write_latency": [{"size_bytes": 4096, "quantiles": [[0.5, 600.0]]}],
    "restore": {"bytes_per_second": 3e6, "block_bytes": 524_288},
    "events": [{"kind": "pause", "from_seconds": 60.0, "until_seconds": 61.0}],
    "seed": 7,
}


def test_the_model_in_force_is_the_one_that_was_asked_for(server: VolumeServer) -> None:
    assert server.command({"in_force": True}) == {"in_force": EMPTY}
    assert server.command({"configure": FULL}) == {"in_force": FULL}
    assert server.command({"configure": {}}) == {"in_force": EMPTY}


def test_a_new_model_begins_with_an_empty_account(server: VolumeServer) -> None:
    bench(server, 500)
    began = time.monotonic()
    server.command({"configure": iops_limit(1e6)})
    counted = account(server)
    assert counted["total_read_ops"] == 0
    assert counted["pcvolume"]["seconds"] <= time.monotonic() - began
    assert qemu_io(server, "read 0 4k").ok
    assert account(server)["total_read_ops"] == 1


def test_a_request_in_flight_completes_by_the_old_model(server: VolumeServer) -> None:
    server.command({"configure": {"read_latency": fixed_latency(1e6)}})
    began = time.monotonic()
    reading = spawn(bench_argv(server, 1, 1))
    wait_for_queue(server)
    server.command({"configure": {}})
    assert reading.wait(SECONDS) == 0
    assert time.monotonic() - began >= 1.0
    assert account(server)["total_read_ops"] == 0


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ({"configure": {"limits": [{}]}}, "missing field `layer`"),
        ({"configure": {"limit": []}}, "unknown field `limit`"),
        ({"configure": iops_limit(0)}, "per_second must be positive, and is 0"),
        ({"event": {"kind": "melt"}}, "unknown variant `melt`"),
        ({"event": {"kind": "pause", "until_seconds": 0}}, "must be after from_seconds"),
        ({"account": False}, "the only value is true"),
        ({"stop": True}, "unknown variant `stop`"),
        ({}, "expected value"),
    ],
)
def test_a_command_that_is_refused_changes_nothing(
    server: VolumeServer, command: dict[str, Any], reason: str
) -> None:
    server.command({"configure": FULL})
    with pytest.raises(HostError, match=reason):
        server.command(command)
    held = server.command({"in_force": True})["in_force"]
    assert held["events"] == FULL["events"]
    assert len(held["limits"]) == 2


def test_clients_that_hang_or_say_too_much_do_not_keep_others_waiting(
    server: VolumeServer,
) -> None:
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as loud:
        silent.connect(str(server.control_socket))
        loud.connect(str(server.control_socket))
        loud.settimeout(10)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            loud.sendall(b" " * 2**22)
        assert account(server)["total_read_ops"] == 0
    assert send_command(server.control_socket, {"account": True})


def test_requests_of_a_range_fail_and_are_counted(server: VolumeServer) -> None:
    add(server, kind="fail", first_byte=8192, end_byte=16384)
    done = qemu_io(server, "read 0 4k", "read 8k 4k", "read 4k 8k", "read 16k 4k")
    assert done.stdout.count(READ_FAILED) == 2
    counted = account(server)
    assert counted["total_read_ops"] == 2
    assert counted["pcvolume"]["failed_ops"] == 2
    assert counted["pcvolume"]["last_error"] is None


def test_a_detached_volume_answers_nothing_but_errors(server: VolumeServer) -> None:
    add(server, kind="detach", from_seconds=2.0)
    assert qemu_io(server, "write -P 1 0 4k").ok
    time.sleep(2.1)
    before = volume_file(server).read_bytes()
    done = qemu_io(server, "read 0 4k", "write -P 2 0 4k", "discard 0 4k", "flush")
    assert not done.ok
    assert done.stdout.count("Input/output error") >= 3, done.stdout
    assert volume_file(server).read_bytes() == before


def test_a_pause_delays_and_ends(server: VolumeServer) -> None:
    add(server, kind="pause", until_seconds=0.7)
    began = time.monotonic()
    assert qemu_io(server, "read 0 4k").ok
    assert 0.5 < time.monotonic() - began < 20.0


def test_an_endless_pause_ends_with_the_next_model(server: VolumeServer) -> None:
    add(server, kind="pause")
    reading = spawn(bench_argv(server, 1, 1))
    wait_for_queue(server)
    time.sleep(0.7)
    assert reading.poll() is None
    server.command({"configure": {}})
    assert reading.wait(SECONDS) == 0
