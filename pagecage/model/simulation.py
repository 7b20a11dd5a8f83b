"""Properties of a cloud volume that only a simulated volume has, not the kernel's io.max."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerLimit:
    """A limit of one layer, `volume` or `instance`, on reads, writes or both (`of`).

    `unit` is `operations`, counted by the provider's rules, or `bytes`. With `burst_per_second` and
    `credits` it is the base rate of a bucket.
    """

    layer: str
    of: str
    unit: str
    per_second: float
    burst_per_second: float | None = None
    credits: float | None = None


@dataclass(frozen=True)
class LatencyQuantiles:
    """The latency of requests of `size_bytes`: pairs of a probability and microseconds, ascending.

    Between two quantiles the logarithm of the latency is linear in the probability.
    """

    size_bytes: int
    quantiles: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class SnapshotRestore:
    """A volume created from a snapshot: the first touch of each block loads it at this rate."""

    bytes_per_second: float
    block_bytes: int


@dataclass(frozen=True)
class VolumeEvent:
    """An event of `kind` degrade, delay, pause, fail or detach.

    It applies to requests that arrive in its period, in seconds since the start of the measured
    part. Without `until_seconds` it lasts. `share` is that of the rates (degrade), or of the
    requests (delay, fail). A `fail` concerns the bytes from `first_byte` to before `end_byte`.
    """

    kind: str
    from_seconds: float = 0.0
    until_seconds: float | None = None
    share: float | None = None
    latency_us: float | None = None
    first_byte: int | None = None
    end_byte: int | None = None


@dataclass(frozen=True)
class VolumeSimulation:
    """Limits by layer, latencies, and events of a simulated volume.

    Without `limits`, the cage's own I/O properties are the volume's limits.
    """

    limits: tuple[LayerLimit, ...] = ()
    read_latency: tuple[LatencyQuantiles, ...] = ()
    write_latency: tuple[LatencyQuantiles, ...] = ()
    restore: SnapshotRestore | None = None
    events: tuple[VolumeEvent, ...] = ()
