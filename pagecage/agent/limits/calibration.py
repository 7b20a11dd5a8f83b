"""Proof of a cage's limits by programs that try to exceed them; simulated volumes."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pagecage.agent.drivers.driver import ExternalLimits, io_properties
from pagecage.errors import HostError, PagecageError
from pagecage.linux.block_device import Disk
from pagecage.linux.cgroup_files import read_counters
from pagecage.linux.child_processes import Interruption
from pagecage.linux.systemd import unit_name
from pagecage.linux.trial_processes import CgroupMaker
from pagecage.model.cage import (
    HORIZON_SECONDS,
    IO_MAX_KEY,
    IO_STAT_KEY,
    MEMORY_EVENT,
    SHARED_PROPERTIES,
    Cage,
    CreditBucket,
    TokenBucket,
    enforced_limit,
    filled,
    less_debt,
    split,
)
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.volume_model import volume_model
from pagecage.process import Completed, find_tool, last_line, run
from pagecage.units import KIB, MIB, kernel_page_bytes, page_floor_bytes

Used = Mapping[str, float]


@dataclass
class LimitMeter:
    """One bucket, the keys of io.stat that drain it, and the limits in force.

    `counters` maps each systemd property that the meter sets to its io.stat key: two entries if
    reads and writes share the limit. Without a burst the bucket has no capacity. `caps` are limits
    by property.
    """

    kind: str
    counters: dict[str, str]
    bucket: TokenBucket
    caps: dict[str, int] = field(default_factory=dict)
    _recent: deque[tuple[float, Used]] = field(default_factory=deque)

    @property
    def bursts(self) -> bool:
        return self.bucket.rate > self.bucket.base

    def charge(self, moved: Mapping[str, float], seconds: float) -> None:
        used = {prop: moved.get(key, 0.0) for prop, key in self.counters.items()}
        self.bucket = self.bucket.after(sum(used.values()), seconds)
        self._recent.append((seconds, used))
        while sum(length for length, _ in self._recent) - self._recent[0][0] >= HORIZON_SECONDS:
            self._recent.popleft()
        if not self.bursts and not self._is_mixed:
            # io.max alone limits one direction; its initial grace is not a debt.
            self.bucket = filled(self.bucket.base, self.bucket.rate, 0.0, "drained")

    @property
    def _is_mixed(self) -> bool:
        """True if both directions were used within the last HORIZON_SECONDS."""
        return len(self.counters) > 1 and all(
            any(used[p] for _, used in self._recent) for p in self.counters
        )

    def wanted(self) -> dict[str, int]:
        cap = self.bucket.cap
        if not self._is_mixed:
            caps = dict.fromkeys(self.counters, cap)
        else:
            limit = less_debt(cap, max(0.0, -self.bucket.credits), HORIZON_SECONDS)
            # The recent use per second: a shorter period would show only blk-throttle's slices.
            seconds = sum(length for length, _ in self._recent)
            moved = {prop: sum(used[prop] for _, used in self._recent) for prop in self.counters}
            caps = split(limit, {p: n / seconds if seconds else 0.0 for p, n in moved.items()})
        # As the kernel enforces it, so that the record is exact; the base as requested.
        base = int(self.bucket.base)
        return {p: max(int(enforced_limit(p, one)), min(one, base)) for p, one in caps.items()}

    def to_json(self) -> Json:
        return {
            "kind": self.kind,
            "properties": sorted(self.counters),
            "base": self.bucket.base,
            "rate": self.bucket.rate,
            "capacity": self.bucket.capacity,
            "credits_at_start": self.bucket.credits,
        }


def meters(cage: Cage) -> Iterator[LimitMeter]:
    """Yield the meters of a cage: one per shared limit, and one per direction that can burst."""
    for kind, properties in SHARED_PROPERTIES.items():
        bucket = getattr(cage.burst, kind) if cage.burst else None
        present = {prop: IO_STAT_KEY[prop] for prop in properties if prop in cage.properties}
        if shares(cage, kind):
            yield _meter(cage, kind, present, bucket)
        else:
            bursting = {
                p: key for p, key in present.items() if bucket and cage.properties[p] < bucket.rate
            }
            yield from (_meter(cage, kind, {prop: key}, bucket) for prop, key in bursting.items())


def shares(cage: Cage, kind: str) -> bool:
    """Return whether reads and writes share the cage's limit of `kind`, iops or bandwidth."""
    caps = {cage.properties.get(prop) for prop in SHARED_PROPERTIES[kind]}
    return (
        bool(cage.accounting and cage.accounting.combined) and len(caps) == 1 and None not in caps
    )


def shares_all(cage: Cage) -> bool:
    """Return whether the cage has I/O limits and reads and writes share all of them."""
    kinds = [
        kind
        for kind, properties in SHARED_PROPERTIES.items()
        if cage.properties.keys() & set(properties)
    ]
    return bool(kinds) and all(shares(cage, kind) for kind in kinds)


def _meter(
    cage: Cage, kind: str, counters: dict[str, str], bucket: CreditBucket | None
) -> LimitMeter:
    base = min(cage.properties[prop] for prop in counters)
    if bucket is None or cage.burst is None or bucket.rate <= base:
        return LimitMeter(
            kind, counters, TokenBucket(base, base, 0.0, 0.0), dict.fromkeys(counters, base)
        )
    return LimitMeter(kind, counters, filled(base, bucket.rate, bucket.credits, cage.burst.start))


SCRATCH = "calibration-scratch.bin"
"""The file that calibration writes."""
_SECONDS = 2.0
_IOS_AROUND = 8
"""I/Os of fio's start, and of the file system for its file, which are counted too."""
DRIVEN_SHARE = 0.85
"""Below this share of the limit, the disk and not the limit was the bottleneck."""
# property -> fio's pattern, block size and queue depth that exceed it.
_LOADS = {
    "IOReadBandwidthMax": ("read", "256k", 16),
    "IOReadIOPSMax": ("randread", "4k", 64),
    "IOWriteBandwidthMax": ("write", "256k", 16),
    "IOWriteIOPSMax": ("randwrite", "4k", 64),
}
_FILL = "n = int(__import__('sys').argv[1]); b = b'1' * n; print(len(b))"
_FILL_SLOWLY = f"__import__('signal').alarm(5); {_FILL}"
_SPIN = (
    "import os, time\nfor _ in range(os.cpu_count() or 1):\n  if os.fork() == 0: break\n"
    "end = time.monotonic() + float(__import__('sys').argv[1])\nwhile time.monotonic() < end: pass"
)


@dataclass(frozen=True)
class Calibration:
    """Result for one limit. `observed` and `allowed` are in the property's own unit.

    `held` is None if the load did not reach the limit or if a tool is missing; `error` is the
    reason.
    """

    method: str
    seconds: float | None
    allowed: float
    observed: float | None
    held: bool | None
    error: str | None = None


class Calibrator:
    """Calibrates the limits of cages and caches the results for a machine state."""

    def __init__(
        self, maker: CgroupMaker, disk: Disk, data_dir: Path | None, interruption: Interruption
    ) -> None:
        self._maker, self._disk, self._data_dir = maker, disk, data_dir
        self._interruption = interruption
        self._known: dict[str, dict[str, Json]] = {}
        self._elsewhere: dict[str, Calibrator] = {}

    def on(self, disk: Disk, directory: Path | None = None) -> Calibrator:
        """Return the calibrator of a disk; on another, writes need a `directory`."""
        if disk.maj_min == self._disk.maj_min:
            return self
        other = Calibrator(self._maker, disk, directory, self._interruption)
        return self._elsewhere.setdefault(f"{disk.maj_min} {directory}", other)

    def calibrate(self, cage: Cage, read_from: Path | None) -> Mapping[str, JsonView]:
        """Return a Calibration as JSON by property; `read_from` lasts for seconds at the limit."""
        key = json.dumps([cage.name, dict(cage.properties)], sort_keys=True)
        if key not in self._known:
            found = {n: self._drive(n, cap, read_from) for n, cap in cage.properties.items()}
            self._known[key] = {name: vars(one) for name, one in found.items() if one}
        return self._known[key]

    def _drive(self, name: str, cap: int, read_from: Path | None) -> Calibration | None:
        if name in IO_MAX_KEY:
            scratch = self._data_dir / SCRATCH if self._data_dir else None
            target = read_from if "Read" in name else scratch

            def load(argv: list[str]) -> tuple[Completed, float | None]:
                done, counters, _ = self._in_slice(name, cap, argv)
                on_disk = (counters["io.stat"] or {}).get(self._disk.maj_min, {})
                return done, on_disk.get(IO_STAT_KEY[name])

            return _drive_disk(name, cap, target, load, _CGROUP) if target else None
        drive = {
            "MemoryMax": self._drive_memory,
            "MemoryHigh": self._drive_memory_high,
            "CPUQuota": self._drive_cpu,
        }.get(name)
        return drive(name, cap) if drive else None

    def _in_slice(self, name: str, cap: int, argv: list[str]) -> tuple[Completed, Json, float]:
        """Run a command under one limit; return its result, the counters, and the seconds."""
        properties = {name: cap, **({"MemorySwapMax": 0} if name in MEMORY_EVENT else {})}
        unit = unit_name(f"calibrate_{name.lower()}")
        try:
            cgroup = self._maker.make(unit, Cage("calibrate", properties), self._disk)
            begin = time.monotonic()
            command = self._maker.enter_command(unit, argv)
            done = run(command, check=False, timeout_seconds=120)
            return done, read_counters(cgroup), time.monotonic() - begin
        finally:
            with self._interruption.held():
                self._maker.remove(unit)

    def _drive_memory(self, name: str, cap: int) -> Calibration:
        method = "fill anonymous memory past the limit"
        argv = [sys.executable, "-I", "-c", _FILL, str(cap + 32 * MIB)]
        done, counters, seconds = self._in_slice(name, cap, argv)
        killed = (counters["memory.events"] or {}).get("oom_kill", 0)
        peak, limit = counters["memory.peak"], page_floor_bytes(cap, kernel_page_bytes())
        held = killed > 0 and (peak is None or peak <= limit)
        error = f"exit status {done.status}, oom_kill {killed}, peak {peak} of {limit}"
        return Calibration(method, seconds, limit, peak, held, None if held else error)

    def _drive_memory_high(self, name: str, cap: int) -> Calibration:
        """Fill memory a little past the limit: far past it, sleeps are long (memcontrol.c)."""
        method = "fill anonymous memory past the limit, which throttles"
        argv = [sys.executable, "-I", "-c", _FILL_SLOWLY, str(max(MIB, cap - 2 * MIB))]
        _, counters, seconds = self._in_slice(name, cap, argv)
        events, peak = counters["memory.events"] or {}, counters["memory.peak"]
        limit, was_throttled = page_floor_bytes(cap, kernel_page_bytes()), events.get("high", 0) > 0
        is_past = peak is not None and peak > limit
        held = True if was_throttled else False if is_past else None
        error = None if held else f"memory.events {events}, peak {peak} of {limit}"
        return Calibration(method, seconds, limit, peak, held, error)

    def _drive_cpu(self, name: str, cap: int) -> Calibration:
        _, counters, seconds = self._in_slice(name, cap, [sys.executable, "-I", "-c", _SPIN, "1.5"])
        used = (counters["cpu.stat"] or {}).get("usage_usec", 0) / 1e6 / seconds * 100
        if used < DRIVEN_SHARE * cap:
            error = f"the machine reached only {used / cap:.0%} of the quota"
            return Calibration("spin on every CPU", seconds, cap * 1.1, used, None, error)
        return Calibration("spin on every CPU", seconds, cap * 1.1, used, used <= cap * 1.1)


class _Enforcer(NamedTuple):
    """The names of the driven and of its limit, and what may exceed the limit."""

    driven: str
    limit: str
    silence: str
    grace: float
    first_slice_seconds: float = 0.0
    bytes_around: int = 0


# blk-throttle passes its first slice at device speed (block/blk-throttle.c, DFL_THROTL_SLICE).
_CGROUP = _Enforcer("disk", "cap", "the cgroup counted no I/O on the measured disk", 1.03, 0.1)
# The account is read after fio has ended, and its run time counts fio's threads alone.
_VOLUME = _Enforcer("volume", "limit", "the volume counted no I/O", 1.02, bytes_around=64 * KIB)


def _drive_disk(
    name: str,
    cap: int,
    target: Path,
    drive: Callable[[list[str]], tuple[Completed, float | None]],
    by: _Enforcer,
) -> Calibration:
    """Drive an I/O limit by fio; `drive` runs it and returns what was counted."""
    pattern, block, depth = _LOADS[name]
    method = f"fio direct {pattern} {block} qd{depth}"
    if not find_tool("fio"):
        return Calibration(method, None, cap, None, None, "fio is not installed")
    load = [f"--filename={target}", f"--rw={pattern}", f"--bs={block}", f"--iodepth={depth}"]
    how = ["--ioengine=libaio", "--direct=1", "--time_based", f"--runtime={_SECONDS:g}"]
    guard = "--readonly" if "read" in pattern else "--size=64M"
    argv = ["fio", "--name=calibrate", *load, *how, "--output-format=json", guard]
    if "Write" in name:
        run([*argv, "--create_only=1"], timeout_seconds=120)
    done, counted = drive(argv)
    try:
        job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
        seconds = max(job["read"]["runtime"], job["write"]["runtime"]) / 1000
    except (ValueError, LookupError):
        reason = f"fio failed: {last_line(done.stderr, 'it printed no JSON')}"
        return Calibration(method, None, cap, None, None, reason)
    if counted is None or seconds <= 0:
        return Calibration(method, seconds, cap, None, None, by.silence)
    around, observed = _IOS_AROUND if "IOPS" in name else by.bytes_around, counted / seconds
    allowed = cap * (1 + by.first_slice_seconds / seconds) * by.grace + around / seconds
    if observed < DRIVEN_SHARE * cap:
        reason = f"the {by.driven} reached only {observed / cap:.0%} of the {by.limit}"
        return Calibration(method, seconds, allowed, observed, None, reason)
    return Calibration(method, seconds, allowed, observed, observed <= allowed)


def remove_scratch(data_dir: Path) -> None:
    try:
        (data_dir / SCRATCH).unlink()
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            raise PagecageError(f"{error.filename} cannot be removed: {error.strerror}") from None


ENFORCER = "volume"
QEMU = "qemu"
"""The path to the volume of a guest: QEMU is the client."""
Command = Callable[[JsonView], Json]
"""Sends a command to the server of the volume. Raises HostError if it is refused."""
_NO_LIMIT = volume_model(Cage("", {}), 0)


class SimulatedVolume:
    """The volume of one trial. Every method raises HostError if the volume does not answer.

    `path` names the path between the program and the server, with the time that it adds to a
    request if that is known. Replies are sent so much earlier.
    """

    def __init__(self, command: Command, path: JsonView | None = None) -> None:
        self._command, self.path = command, path or {"kind": QEMU}

    def free(self) -> None:
        """Remove all limits and latencies, so that preparations take no longer than needed."""
        self.configure(_NO_LIMIT)

    def configure(self, model: JsonView) -> Json:
        """Replace the model, with fresh credits and an empty account; return it as in force."""
        answer = self._command({"configure": model})
        return dict(answer["in_force"])

    def account(self) -> Json:
        """Return the account since the last `configure`."""
        return self._command({"account": True})

    def enforce(self, cage: Cage, seed: int) -> ExternalLimits:
        """Put a cage in force. Raises HostError if the volume then has another model."""
        model = volume_model(cage, seed)
        if path_us := self.path.get("latency_us"):
            model["path_us"] = path_us
        in_force = self.configure(model)
        wrong = [key for key, value in model.items() if in_force.get(key) != value]
        if wrong:
            found = ", ".join(f"{key} = {in_force.get(key)}" for key in wrong)
            raise HostError(f"the simulated volume holds another model: {found}")
        return ExternalLimits(ENFORCER, io_properties(cage), in_force, self.path)


def sound_account(volume: SimulatedVolume) -> Json:
    """Return the account of a volume whose file served every request.

    Raises HostError if the file could not, as on a full disk: the program has met an error that is
    not the volume's.
    """
    account = volume.account()
    if error := account["pcvolume"].get("last_error"):
        reason = f"the file below the simulated volume failed: {error}"
        raise HostError(reason, "free space on its disk, and run it again")
    return account


@dataclass
class VolumeCalibrator:
    """Calibrates volumes and remembers the results for a machine state."""

    _known: dict[str, Json] = field(default_factory=dict)

    def calibrate(
        self, volume: SimulatedVolume, cage: Cage, read_from: Path | None, scratch: Path
    ) -> Mapping[str, JsonView]:
        """Return a Calibration as JSON by property; `scratch` is a file that may be written."""
        model: Json = volume_model(cage, 0)  # the limits alone, with empty buckets
        model |= {"read_latency": [], "write_latency": [], "restore": None, "events": []}
        model["limits"] = [
            {**limit, "credits": limit["credits"] and {**limit["credits"], "start": 0.0}}
            for limit in model["limits"]
        ]
        key = json.dumps([model, sorted(cage.properties)], sort_keys=True)
        if key not in self._known:
            targets = {n: read_from if "Read" in n else scratch for n in cage.properties}
            self._known[key] = {
                name: vars(_drive_volume(volume, model, name, cage.properties[name], target))
                for name, target in targets.items()
                if target and name in IO_MAX_KEY
            }
        return self._known[key]


def _drive_volume(
    volume: SimulatedVolume, model: JsonView, name: str, cap: int, target: Path
) -> Calibration:
    unit = "operations" if "IOPS" in name else "bytes"
    scopes = ("both", "read" if "Read" in name else "write")

    def drive(argv: list[str]) -> tuple[Completed, float | None]:
        volume.configure(model)
        try:
            done = run(argv, check=False, timeout_seconds=120)
            limits = volume.account()["pcvolume"]["limits"]
        finally:
            volume.free()
        used = [one["used"] for one in limits if one["unit"] == unit and one["scope"] in scopes]
        return done, max(used, default=None)

    return _drive_disk(name, cap, target, drive, _VOLUME)
