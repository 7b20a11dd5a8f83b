"""Hypothesis strategies for cages and trials."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from pagecage.model.cage import (
    ENFORCERS,
    IO_MAX_KEY,
    PROPERTIES,
    BurstCredits,
    Cage,
    CloudVolume,
    CreditBucket,
    DiskLimits,
    IoAccounting,
    LatencyFloor,
    LatencyQuantiles,
    LayerLimit,
    SnapshotRestore,
    VolumeEvent,
    VolumeSimulation,
)
from pagecage.model.trial import (
    CACHE_STATES,
    COLLECTORS,
    DRIVERS,
    Dataset,
    SetupStep,
    Storage,
    Trial,
    Workload,
)

words = st.text(max_size=15)
datasets = st.builds(
    Dataset, st.integers(1, 2**60), st.integers(0, 2**31), st.sampled_from(["random", "zero"])
)

counts = st.integers(1, 2**50)
buckets = st.none() | st.builds(CreditBucket, counts, counts)
flags = st.none() | st.booleans()

_rates = st.floats(0.5, 2**50)
_bursts = st.none() | st.tuples(st.floats(1.01, 1000), st.floats(0.5, 2**50))


def _layer_limit(
    layer: str, of: str, unit: str, base: float, burst: tuple[float, float] | None
) -> LayerLimit:
    bucket = (base * burst[0], burst[1]) if burst else (None, None)
    return LayerLimit(layer, of, unit, base, *bucket)


layer_limits = st.builds(
    _layer_limit,
    st.sampled_from(["volume", "instance"]),
    st.sampled_from(["both", "read", "write"]),
    st.sampled_from(["operations", "bytes"]),
    _rates,
    _bursts,
)
_points = st.lists(
    st.tuples(st.floats(0, 1), st.floats(1e-3, 1e9)),
    min_size=1,
    max_size=8,
    unique_by=lambda x: x[0],
)
latency_quantiles = st.builds(
    lambda size, points: LatencyQuantiles(
        size,
        tuple(
            zip(
                sorted(probability for probability, _ in points),
                sorted(us for _, us in points),
                strict=True,
            )
        ),
    ),
    st.integers(1, 2**31),
    _points,
)
_by_size = st.lists(latency_quantiles, max_size=3, unique_by=lambda one: one.size_bytes).map(tuple)
_seconds, _shares = st.floats(0, 1e6), st.floats(0.001, 1)


def _lasting(begin: float, length: float | None) -> tuple[float, float | None]:
    return begin, None if length is None else begin + length


_periods = st.builds(_lasting, _seconds, st.none() | st.floats(1, 1e6))


def _event(
    kind: str,
    when: tuple[float, float | None],
    share: float,
    latency_us: float | None = None,
    first: int | None = None,
    length: int | None = None,
) -> VolumeEvent:
    end = None if length is None else (first or 0) + length
    return VolumeEvent(kind, *when, share, latency_us, first, end)


_bytes = (st.none() | st.integers(0, 2**50), st.none() | st.integers(1, 2**50))
_events = st.one_of(
    st.builds(_event, st.just("degrade"), _periods, _shares),
    st.builds(_event, st.just("delay"), _periods, _shares, st.floats(1e-3, 1e9)),
    st.builds(lambda begin, length: VolumeEvent("pause", begin, begin + length), _seconds, _rates),
    st.builds(_event, st.just("fail"), _periods, _shares, st.none(), *_bytes),
    st.builds(lambda begin: VolumeEvent("detach", begin), _seconds),
)
simulations = st.builds(
    VolumeSimulation,
    st.lists(layer_limits, max_size=4).map(tuple),
    _by_size,
    _by_size,
    st.none() | st.builds(SnapshotRestore, _rates, st.integers(4096, 2**40)),
    st.lists(_events, max_size=3).map(tuple),
)

_volume_parts = {
    "volume": st.none()
    | st.builds(CloudVolume, st.none() | st.text(max_size=5), scale=st.sampled_from([1.0, 0.1])),
    "burst": st.none()
    | st.builds(BurstCredits, st.sampled_from(["full", "half", "drained"]), buckets, buckets),
    "accounting": st.none() | st.builds(IoAccounting, st.none() | counts, flags, flags),
    "latency": st.none() | st.builds(LatencyFloor, st.none() | counts, st.none() | counts),
    "simulation": st.none() | simulations,
}
disk_limits = st.builds(
    DiskLimits,
    properties=st.dictionaries(st.sampled_from(sorted(IO_MAX_KEY)), st.integers(1, 2**50)),
    **_volume_parts,
)
cages = st.builds(
    Cage,
    name=st.text(min_size=1, max_size=20),
    properties=st.dictionaries(st.sampled_from(PROPERTIES), st.integers(0, 2**50)),
    provenance=st.dictionaries(st.text(max_size=10), st.text(max_size=10)),
    **_volume_parts,
    enforced_by=st.sampled_from(ENFORCERS),
    dilation=st.sampled_from([1.0, 10.0]),
    disks=st.dictionaries(st.sampled_from(["wal", "log", "index2"]), disk_limits, max_size=2),
)
trials = st.builds(
    Trial,
    trial_id=words,
    experiment=words,
    treatment=st.dictionaries(words, words, max_size=3),
    repeat=st.integers(1, 99),
    block=st.integers(1, 99),
    position=st.integers(0, 999),
    workload=st.builds(
        Workload,
        words,
        st.lists(words, max_size=4).map(tuple),
        st.sampled_from(["handshake", "command", "fio"]),
        st.integers(0, 2**40),
    ),
    cage=cages,
    cache=st.sampled_from(CACHE_STATES),
    dataset=st.none() | datasets,
    read_ahead_kb=st.none() | st.integers(0, 4096),
    collectors=st.lists(st.sampled_from(COLLECTORS), unique=True).map(tuple),
    max_seconds=st.none() | st.floats(0.1, 1e6),
    timeout_seconds=st.floats(0.1, 1e6),
    files=st.integers(1, 200),
    before=st.none()
    | st.builds(SetupStep, words, st.lists(words).map(tuple), st.sampled_from(["same", "other"])),
    storage=st.sampled_from(get_args(Storage)),
    machine_memory_bytes=st.none() | st.integers(1, 2**50),
    dirty_limits=st.dictionaries(
        st.sampled_from(["dirty_bytes", "dirty_background_bytes"]), st.integers(8192, 2**40)
    ),
    writes_bytes=st.integers(0, 2**50),
    driver=st.sampled_from(DRIVERS),
)
