"""A simulated volume driven directly by fio, without a guest: measured against its own model.

fio keeps a fixed number of requests in flight: on the block device that a trial on this machine
would have, else (without root, FUSE or loop devices) on the volume's socket (ioengine=nbd in
fio(1)). The expected rate follows from the limits and the mean latency alone.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pagecage.agent import volume_server
from pagecage.agent.volume_server import FuseLoop, NbdClient, VolumeServer
from pagecage.errors import HostError
from pagecage.model.cage import Cage, LatencyQuantiles
from pagecage.model.json_codec import JsonView
from pagecage.model.volume_model import latency_at_size, mean_us_at_size, volume_model
from pagecage.process import find_tool, run
from pagecage.units import GIB, KIB, MIB

PERCENTILES = (50.0, 95.0, 99.0, 99.9)
FILE_BYTES = 4 * GIB


@dataclass(frozen=True)
class Load:
    """A load: `pattern` of fio (randread, randwrite, randrw, read, write), block size, depth."""

    pattern: str
    block_bytes: int
    depth: int

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions of its requests."""
        if "rw" in self.pattern:
            return ("read", "write")
        return ("write",) if "write" in self.pattern else ("read",)


@dataclass(frozen=True)
class DrivenVolume:
    """A served volume without limits, fio's words for it, and the path to it (FORMAT.md)."""

    server: VolumeServer
    words: Sequence[str]
    path: JsonView


@dataclass(frozen=True)
class DriveResult:
    """A load's result alongside the model's arithmetic.

    Rates are requests per second. Expected latencies are those that were set, or at a limit the
    mean by Little's law. `limit` is the limit that decides the rate, None if latency does.
    """

    load: Load
    seconds: float
    per_second: float
    expected_per_second: float | None
    mean_us: float
    percentiles_us: Mapping[float, float]
    expected_percentiles_us: Mapping[float, float] | None
    limit: str | None
    late_share: float

    @property
    def rate_error(self) -> float | None:
        """The measured rate as a share above the expected one."""
        expected = self.expected_per_second
        return None if expected is None else self.per_second / expected - 1

    @property
    def littles_error(self) -> float:
        """The mean number in flight, rate times latency, as a share above the depth."""
        return self.per_second * self.mean_us / 1e6 / self.load.depth - 1


@dataclass(frozen=True)
class CreditsResult:
    """Drain and refill of one bucket, alongside the formula credits / (burst - base).

    The bucket was made smaller, to drain in `expected_drain_seconds`; rates are unchanged.
    """

    limit: str
    burst_per_second: float
    base_per_second: float
    expected_drain_seconds: float
    drain_seconds: float | None
    refill_per_second: float | None


@contextmanager
def served_volume(programs: Path) -> Iterator[DrivenVolume]:
    """Serve an empty volume for the block. Raises HostError without fio or a way to serve it."""
    path: FuseLoop | NbdClient = FuseLoop()
    name = volume_server.FUSE_PROGRAM
    try:
        path.require()
    except HostError:
        volume_server.require_nbdkit()
        path, name = NbdClient(), volume_server.PLUGIN
    if find_tool("fio") is None:
        raise HostError("fio drives the volume, and is not installed", "apt-get install fio")
    if not (programs / name).exists():
        raise HostError(f"{name} is not built", "make build")
    with TemporaryDirectory(prefix="pagecage-volume-") as temporary:
        folder = Path(temporary).resolve()
        file = folder / "volume.raw"
        with file.open("wb") as volume:
            volume.truncate(FILE_BYTES)
        # Writes at the same time would wait for each other's allocation. Without room, they do.
        run(["fallocate", "--length", str(FILE_BYTES), file], check=False)
        server = path.serve(programs, file, folder)
        try:
            if isinstance(path, NbdClient):  # without root
                words = ["--ioengine=nbd", f"--uri=nbd+unix:///?socket={server.data_socket}"]
                yield DrivenVolume(server, words, {"kind": "socket"})
            else:
                node = path.attach(server, folder)
                latency_us = volume_server.path_latency_us(node, server.command)
                words = ["--ioengine=libaio", "--direct=1", f"--filename={node}"]
                yield DrivenVolume(server, words, {"kind": path.name, "latency_us": latency_us})
        finally:
            path.detach(folder)
            server.end()


def drive(volume: DrivenVolume, model: JsonView, load: Load, seconds: float) -> DriveResult:
    """Drive a volume of this model with a load, and compare the result with the model."""
    server, path_us = volume.server, volume.path.get("latency_us", 0.0)
    server.command({"configure": {**model, "path_us": path_us}})
    took, parts = _run_fio(volume, load, seconds)
    account = server.command({"account": True})["pcvolume"]
    operations = sum(part["total_ios"] for part in parts)
    expected, limit = expected_rate(model, load)
    is_latency = limit is None and expected is not None and len(parts) == 1
    found, sizes = parts[0]["lat_ns"]["percentile"], _latencies(model, load.directions[0])
    set_us = {p: latency_at_size(sizes, load.block_bytes, p / 100) for p in PERCENTILES}
    return DriveResult(
        load,
        took,
        operations / took,
        expected,
        sum(part["lat_ns"]["mean"] * part["total_ios"] for part in parts) / operations / 1000,
        {float(name): value / 1000 for name, value in found.items()},
        set_us if is_latency else None,
        limit,
        account["late_ops"] / operations,
    )


def drive_credits(volume: DrivenVolume, model: JsonView, seconds: float) -> Iterator[CreditsResult]:
    """Drain each bucket of a model in about `seconds`, alone, and let it refill for a second."""
    server = volume.server
    for limit in [one for one in model["limits"] if one["credits"]]:
        burst, base = limit["credits"]["burst_per_second"], limit["per_second"]
        capacity = (burst - base) * seconds
        credits_ = {"burst_per_second": burst, "capacity": capacity, "start": capacity}
        alone = volume_model(Cage("", {}), 1) | {"limits": [{**limit, "credits": credits_}]}
        pattern = "randwrite" if limit["scope"] == "write" else "randread"
        load = Load(pattern, MIB if limit["unit"] == "bytes" else 4 * KIB, 32)
        server.command({"configure": alone})
        took, _ = _run_fio(volume, load, 1.5 * seconds)
        time.sleep(_SETTLE_SECONDS)
        first = server.command({"account": True})["pcvolume"]
        time.sleep(1.0)
        second = server.command({"account": True})["pcvolume"]
        [before], [after] = first["limits"], second["limits"]
        is_drained = len(before["changes"]) > 1  # the first is the rate at the start
        refilled = (after["level"] - before["level"]) / (second["seconds"] - first["seconds"])
        # The bucket was full until fio began, at a moment that the account does not show. But the
        # use is burst * drain + base * (took - drain).
        drained = (before["used"] - base * took) / (burst - base) if is_drained else None
        yield CreditsResult(_name(limit), burst, base, seconds, drained, refilled)


_SETTLE_SECONDS = 1.0
"""The last request may have left a debt, which is paid back before the level grows."""


def _name(limit: JsonView) -> str:
    return f"{limit['layer']} {'bandwidth' if limit['unit'] == 'bytes' else 'IOPS'}"


def _run_fio(volume: DrivenVolume, load: Load, seconds: float) -> tuple[float, list[JsonView]]:
    points = ":".join(f"{point:g}" for point in PERCENTILES)
    settings = (
        f"--rw={load.pattern} --bs={load.block_bytes} --iodepth={load.depth} --size={FILE_BYTES}"
        f" --time_based --runtime={seconds:g} --randrepeat=1 --norandommap --lat_percentiles=1"
        f" --percentile_list={points} --output-format=json"
    )
    argv = ["fio", "--name=volume", *volume.words, *settings.split()]
    done = run(argv, timeout_seconds=seconds + 120)
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    parts = [job[name] for name in load.directions]
    return max(part["runtime"] for part in parts) / 1000, parts


def expected_rate(model: JsonView, load: Load) -> tuple[float | None, str | None]:
    """Return the requests per second that a model allows, and the limit that decides.

    None if nothing limits the rate, or if reads and writes have limits apart: one direction then
    waits for the other in the closed loop. Credits are taken to be empty.
    """
    if len(load.directions) > 1 and any(one["scope"] != "both" for one in model["limits"]):
        return None, None
    found: list[tuple[float, str | None]] = []
    for limit in model["limits"]:
        scope = limit["scope"]
        share = 1.0 if scope == "both" else (scope in load.directions) / len(load.directions)
        cost = _cost(limit, model["accounting"], load)
        if share:
            found.append((limit["per_second"] / cost / share, _name(limit)))
    sizes = [_latencies(model, name) for name in load.directions]
    if not all(sizes):
        return min(found, key=lambda pair: pair[0]) if found else (None, None)
    rate, decisive = min(found, key=lambda pair: pair[0], default=(math.inf, None))
    if load.depth == 1 and found:
        # A request that takes longer than that delays the next one, and a shorter one gains
        # nothing.
        least_us = 1e6 / rate
        middles = [(step + 0.5) / _STEPS for step in range(_STEPS)]
        times = [
            max(least_us, latency_at_size(one, load.block_bytes, middle))
            for one in sizes
            for middle in middles
        ]
        return 1e6 / (sum(times) / len(times)), decisive
    means = [mean_us_at_size(one, load.block_bytes) for one in sizes]
    by_latency = load.depth * 1e6 * len(means) / sum(means)
    return (by_latency, None) if by_latency < rate else (rate, decisive)


_STEPS = 2000


def _cost(limit: JsonView, accounting: JsonView, load: Load) -> float:
    """Return the units of a limit that one request costs; merged ones cost a share of an I/O."""
    if limit["unit"] == "bytes":
        return float(load.block_bytes)
    size = accounting["io_size_bytes"]
    if not size:
        return 1.0
    if accounting["merged"] and not load.pattern.startswith("rand"):
        return load.block_bytes / float(size)
    return float(-(-load.block_bytes // size))


def _latencies(model: JsonView, direction: str) -> list[LatencyQuantiles]:
    return [LatencyQuantiles(**one) for one in model[f"{direction}_latency"]]
