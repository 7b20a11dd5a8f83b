"""Hypothesis strategies for cages and trials."""

from __future__ import annotations

from hypothesis import strategies as st

from pagecage.model.cage import (
    PROPERTIES,
    BurstCredits,
    Cage,
    CloudVolume,
    CreditBucket,
    IoAccounting,
    LatencyFloor,
)
from pagecage.model.trial import (
    CACHE_STATES,
    COLLECTORS,
    DRIVERS,
    STORAGES,
    Dataset,
    SetupStep,
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

cages = st.builds(
    Cage,
    name=st.text(min_size=1, max_size=20),
    properties=st.dictionaries(st.sampled_from(PROPERTIES), st.integers(0, 2**50)),
    provenance=st.dictionaries(st.text(max_size=10), st.text(max_size=10)),
    volume=st.none()
    | st.builds(CloudVolume, st.none() | st.text(max_size=5), scale=st.sampled_from([1.0, 0.1])),
    burst=st.none()
    | st.builds(BurstCredits, st.sampled_from(["full", "half", "drained"]), buckets, buckets),
    accounting=st.none() | st.builds(IoAccounting, st.none() | counts, flags, flags),
    latency=st.none() | st.builds(LatencyFloor, st.none() | counts, st.none() | counts),
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
    storage=st.sampled_from(STORAGES),
    storage_latency_us=st.none() | st.integers(1, 10**6),
    machine_memory_bytes=st.none() | st.integers(1, 2**50),
    dirty_limits=st.dictionaries(
        st.sampled_from(["dirty_bytes", "dirty_background_bytes"]), st.integers(8192, 2**40)
    ),
    writes_bytes=st.integers(0, 2**50),
    driver=st.sampled_from(DRIVERS),
)
