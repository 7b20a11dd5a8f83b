"""Contradictions between counters: decreases, and a slice that moved more than its disk.

Kernel counters only grow. In 965 stored trials none went backwards, and no slice counted more bytes
than its disk.
"""

from __future__ import annotations

from collections.abc import Iterator

from pagecage.model.cage import IO_STAT_KEY
from pagecage.model.record import Record
from pagecage.units import MIB, format_bytes
from pagecage.verdicts.counters import (
    counter,
    difference,
    disk_bytes,
    has_cgroup,
    io_difference,
    stalled_seconds,
)

SPARE_BYTES, SPARE_SHARE = MIB, 0.02
"""Bytes that the slice may count beyond its disk: requests on their way at one of the readings."""
_GROWING = (
    *(("device", key) for key in ("reads", "sectors_read", "writes", "sectors_written")),
    ("device", "io_ticks"),
    ("agent", "cpu_usec"),
    ("cgroup", "cpu.stat", "usage_usec"),
    ("cgroup", "cpu.stat", "throttled_usec"),
    *(("cgroup", "memory.events", key) for key in ("high", "max", "oom_kill")),
    *(("host", "stat", key) for key in ("user", "system", "idle", "steal")),
    *(("host", "vmstat", key) for key in ("pgpgin", "pgpgout", "pgfault", "pgmajfault")),
)
"""Counters that figures or verdicts rest on. `iowait` is left out: it may decrease
(proc_stat(5))."""
_TICK = 1
"""/proc/stat adds up the CPUs, one of which may have ended a tick that another reading counted."""


def counter_contradictions(record: Record) -> Iterator[str]:
    """Yield a sentence for each contradiction between counters."""
    yield from _backwards(record)
    if has_cgroup(record) and record.cage.enforced_by != "volume":
        yield from _beyond_disk(record)


def _backwards(record: Record) -> Iterator[str]:
    for key in IO_STAT_KEY.values():
        moved = io_difference(record, key)
        if moved is not None and moved < 0:
            yield f"{key} of io.stat went back by {-moved:,.0f} in the measured part"
    for path in _GROWING:
        grown = difference(record, *path)
        if grown is not None and grown < (-_TICK if path[0] == "host" else 0):
            yield f"{' '.join(path)} went back by {-grown:,.0f} in the measured part"
    for resource in ("cpu", "io", "memory"):
        waited = stalled_seconds(record, resource)
        if waited is not None and waited < 0:
            yield f"{resource}.pressure went back by {-waited:.3f} s in the measured part"


def _beyond_disk(record: Record) -> Iterator[str]:
    for direction, key, verb in (("read", "rbytes", "read"), ("written", "wbytes", "wrote")):
        disk, own = disk_bytes(record, direction), io_difference(record, key)
        if disk is None or own is None or counter(record, "after", "device") is None:
            continue
        if own - disk > max(SPARE_BYTES, SPARE_SHARE * own):
            yield (
                f"the slice {verb} {format_bytes(own)}, more than the {format_bytes(disk)} that the"
                " disk counted"
            )
