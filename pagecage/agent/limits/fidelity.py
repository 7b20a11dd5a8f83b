"""Fidelity of limits, and the correction of io.max by measured rates."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult, ThreadCollector
from pagecage.agent.limits.calibration import meters, shares_all
from pagecage.agent.settings import QueueSettingsJournal
from pagecage.errors import HostError
from pagecage.linux.block_device import Disk, read_queue_settings
from pagecage.linux.cgroup import Cgroup
from pagecage.linux.cgroup_files import read_counters, read_limits, write_io_limits
from pagecage.model.cage import IO_MAX_KEY, Cage, IoAccounting, LatencyFloor
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.requirements import may_rewrite_io_max
from pagecage.model.volume_model import volume_model
from pagecage.units import KIB


@dataclass(frozen=True)
class Fidelity:
    """Fidelity in one `aspect`: `io_size`, `merged`, `combined` or `latency`.

    `state` is `exact`, `stricter` or `looser` than at the provider, or `absent`.
    """

    aspect: str
    state: str
    reason: str


def count_as_provider(
    accounting: IoAccounting, disk: Disk, journal: QueueSettingsJournal, not_shared_reason: str = ""
) -> list[Fidelity]:
    """Make the disk split requests at the provider's I/O size; return the fidelity of each aspect.

    The caller restores the setting from the journal. `not_shared_reason` is empty if the trial's
    io.max is divided between reads and writes.
    """
    found, settings = [], read_queue_settings(disk)
    if wanted_kb := (accounting.io_size_bytes or 0) // KIB:
        largest = int(settings.get("max_hw_sectors_kb") or wanted_kb)
        try:
            journal.set(disk, "max_sectors_kb", str(min(wanted_kb, largest)))
            obstacle = f"the disk takes no more than {largest} KiB" if largest < wanted_kb else ""
        except HostError as error:
            obstacle = error.message
        now, before = (
            read_queue_settings(disk).get("max_sectors_kb"),
            settings.get("max_sectors_kb"),
        )
        found.append(io_size(wanted_kb, int(now) if now else None, before, obstacle))
    if accounting.merged:
        found.append(merged(accounting.io_size_bytes, settings.get("read_ahead_kb")))
    if accounting.combined:
        found.append(combined(not_shared_reason))
    return found


def io_size(wanted_kb: int, now_kb: int | None, before_kb: str | None, obstacle: str) -> Fidelity:
    """Return the fidelity where the disk splits at `now_kb` what counts by `wanted_kb`."""
    if now_kb is None:
        reason = f"the size at which this disk splits its requests is unknown ({obstacle})"
        return Fidelity("io_size", "absent", reason)
    if now_kb == wanted_kb:
        was = "" if str(now_kb) == before_kb else f", which was {before_kb}"
        reason = f"requests are split at {now_kb} KiB (max_sectors_kb{was}), so io.max counts"
        return Fidelity("io_size", "exact", f"{reason} as the provider does")
    here, there = -(-wanted_kb // now_kb), -(-now_kb // wanted_kb)
    state, effect = "looser", f"{now_kb} KiB count once here and {there} times at the provider"
    if now_kb < wanted_kb:
        state = "stricter"
        effect = f"{wanted_kb} KiB count {here} times here and once at the provider"
    return Fidelity("io_size", state, f"requests are split at {now_kb} KiB: {effect} ({obstacle})")


def merged(io_size_bytes: int | None, read_ahead_kb: str | None) -> Fidelity:
    """Return the fidelity to a provider that merges adjacent I/Os before it counts.

    io.max does not merge, which affects sequential reads with a small read-ahead window.
    """
    size_kb = (io_size_bytes or 0) // KIB
    if size_kb and read_ahead_kb and int(read_ahead_kb) >= size_kb:
        reason = "io.max counts before adjacent I/Os are merged, but read-ahead requests"
        return Fidelity("merged", "exact", f"{reason} {read_ahead_kb} KiB at once")
    reason = "the provider merges adjacent I/Os before it counts, io.max does not"
    if read_ahead_kb:
        reason += f", so sequential reads with a window of {read_ahead_kb} KiB cost more I/Os here"
    return Fidelity("merged", "stricter", reason)


def combined(not_shared_reason: str) -> Fidelity:
    if not_shared_reason:
        reason = "reads and writes share one limit at the provider; io.max allows each of them the"
        return Fidelity("combined", "looser", f"{reason} full limit ({not_shared_reason})")
    reason = "reads and writes share one limit: io.max is divided between them by use"
    return Fidelity("combined", "exact", f"{reason}, ten times a second")


def not_shared_reason(cage: Cage, facts: JsonView) -> str:
    """Return why io.max is not divided between reads and writes; empty if it is."""
    if not shares_all(cage):
        return "the cage does not have the same limit for both"
    may_rewrite = may_rewrite_io_max(facts)
    return "" if may_rewrite else f"kernel {facts['kernel']} may hang when io.max is rewritten"


def volume_fidelity(cage: Cage, path: JsonView) -> list[Fidelity]:
    accounting, found = cage.accounting, []
    if accounting and accounting.io_size_bytes:
        reason = f"counts an I/O of more than {accounting.io_size_bytes // KIB} KiB as several"
        found.append(Fidelity("io_size", "exact", f"the volume {reason}, as the provider does"))
    if accounting and accounting.merged:
        reason = "the volume merges adjacent I/Os before it counts them"
        found.append(Fidelity("merged", "exact", reason))
    if accounting and accounting.combined:
        found.append(Fidelity("combined", "exact", "reads and writes share the volume's limits"))
    model, path_us = volume_model(cage, 0), path.get("latency_us", 0.0)
    if sizes := [*model["read_latency"], *model["write_latency"]]:
        least_us = min(us for size in sizes for _, us in size["quantiles"])
        state, reason = "exact", "each I/O takes a latency from the cage's distribution"
        if path_us > least_us:
            reason = f"the path to the volume alone takes {path_us:g} us, and the cage's lowest"
            state, reason = "stricter", f"{reason} latency is {least_us:g} us"
        found.append(Fidelity("latency", state, reason))
    return found


def no_latency(wanted: LatencyFloor) -> Fidelity:
    """Return the fidelity of the latency where a cgroup enforces the limits."""
    reason = f"a cgroup adds no latency, and {wanted} are missing; --enforced-by volume adds them"
    return Fidelity("latency", "absent", reason)


_PERIOD_SECONDS = 0.1
_MOST_REFUSED = 5


def rewrites_io_max(cage: Cage, facts: JsonView) -> bool:
    return any(meters(cage)) and may_rewrite_io_max(facts)


class IoMaxController(ThreadCollector):
    """Enforces every meter of a cage from `start` to `stop`."""

    def __init__(
        self,
        context: CollectorContext,
        cage: Cage,
        *,
        keeps_series: bool = True,
        name: str = "credits",
    ) -> None:
        self.name, self._keeps_series = name, keeps_series
        super().__init__(context)
        if context.processes.cgroup is None:
            raise HostError("io.max belongs to a cgroup, and this trial has none", "use HOST=vm")
        self._cgroup, self._maj_min = context.processes.cgroup, context.disk.maj_min
        self._meters = list(meters(cage))
        self._buckets_at_start = [meter.bucket for meter in self._meters]
        self._lock = threading.Lock()
        self._buckets_json = [meter.to_json() for meter in self._meters]
        bursts = any(meter.bursts for meter in self._meters)
        self._subject = "burst credits" if bursts else "the split of a shared limit"
        self._changes: list[dict[str, float]] = []
        self._overwritten = self._refused = 0

    def start(self) -> None:
        self._read, self._since = self._counters(), time.monotonic()
        self._apply_limits()
        super().start()

    def begin(self) -> None:
        with self._lock, self._ending_early():
            for meter, bucket in zip(self._meters, self._buckets_at_start, strict=True):
                meter.bucket = bucket
            self._read, self._since = self._counters(), time.monotonic()
            self._apply_limits()

    @contextmanager
    def _ending_early(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, HostError) as error:
            self._error = f"{self._subject} ended early: {error}"

    def stop(self) -> CollectorResult:
        """Stop, and write one row per tick, with the credits and limits of each bucket."""
        self._write(5.0, is_compact=True)
        return CollectorResult("failed" if self._error else "ok", self._error, files=(self._path,))

    def to_json(self) -> Json:
        return {
            "buckets": self._buckets_json,
            "changes": list(self._changes),
            "overwritten": self._overwritten,
            "error": self._error,
        }

    def _loop(self) -> None:
        next_at = self._since
        while not self._error and not self._ending.is_set():
            next_at = max(next_at + _PERIOD_SECONDS, time.monotonic())
            self._ending.wait(max(0.0, next_at - time.monotonic()))
            with self._lock, self._ending_early():
                read, now = self._counters(), time.monotonic()
                for meter in self._meters:
                    keys = meter.counters.values()
                    moved = {key: float(read.get(key, 0) - self._read.get(key, 0)) for key in keys}
                    meter.charge(moved, now - self._since)
                self._detect_foreign_writes()
                self._read, self._since = read, now
                self._apply_limits()

    def _counters(self) -> dict[str, int]:
        """io.stat of the cgroup for the disk; a disk that it has not touched has no line."""
        io: dict[str, dict[str, int]] | None = read_counters(self._cgroup, "io.stat")["io.stat"]
        if io is None:
            raise HostError(f"io.stat of {self._cgroup} cannot be read")
        return io.get(self._maj_min, {})

    def _detect_foreign_writes(self) -> None:
        held = read_limits(self._cgroup, self._maj_min)
        for meter in self._meters:
            found = {prop: held.get(f"io.max.{IO_MAX_KEY[prop]}", "max") for prop in meter.counters}
            if any(text != str(meter.caps.get(prop)) for prop, text in found.items()):
                since = max(self._since, self._changes[-1]["t"] if self._changes else self._since)
                self._changes.append(
                    {"t": since, **{p: int(n) for p, n in found.items() if n != "max"}}
                )
                self._overwritten, meter.caps = self._overwritten + 1, {}

    def _apply_limits(self) -> None:
        changed: dict[str, int] = {}
        for meter in self._meters:
            wanted = meter.wanted()
            changed |= {prop: cap for prop, cap in wanted.items() if cap != meter.caps.get(prop)}
            meter.caps = wanted
        if changed:
            # systemd may rewrite the values before the read-back, when a scope starts in the slice.
            try:
                write_io_max(self._cgroup, self._maj_min, changed)
                self._refused = 0
                self._changes.append({"t": time.monotonic(), **changed})
            except HostError:
                self._refused += 1
                if self._refused >= _MOST_REFUSED:
                    raise
                for meter in self._meters:
                    meter.caps = {} if meter.counters.keys() & changed.keys() else meter.caps
        if not self._keeps_series:
            return
        buckets = [
            {"credits": round(meter.bucket.credits, 3), "caps": meter.caps}
            for meter in self._meters
        ]
        self._rows.append({"t": self._since, "wall": time.time(), "buckets": buckets})


def write_io_max(cgroup: Cgroup, maj_min: str, caps: dict[str, int]) -> None:
    """Write limits, named by systemd property. Raises HostError if they read back different."""
    wanted = {IO_MAX_KEY[prop]: str(cap) for prop, cap in caps.items()}
    write_io_limits(cgroup, maj_min, wanted)
    held = read_limits(cgroup, maj_min)
    wrong = [
        f"{key} is {held.get(f'io.max.{key}')}, not {cap}"
        for key, cap in wanted.items()
        if held.get(f"io.max.{key}") != cap
    ]
    if wrong:
        raise HostError(f"io.max differs from the values written: {'; '.join(wrong)}")
