"""A bpftrace program that measures the latency of writes, and the throttling of writers.

There are two histograms, because a cgroup's limit delays writes before they become requests
(block/blk-throttle.c):

* from submit_bio to bio_endio, which includes the wait for the limit;
* from block_rq_issue to block_rq_complete, which is the disk's own time.

Throttling is the pauses of balance_dirty_pages() for tasks that dirty pages faster than the disk
can write (Documentation/admin-guide/sysctl/vm.rst, dirty_bytes; tracepoint
writeback:balance_dirty_pages).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.agent.collectors.collector import CollectorResult
from pagecage.agent.collectors.tracer import TICK, BpftraceProcess, Tick
from pagecage.agent.system.child_processes import ToolProcesses

# hist's second argument is 4: sixteen buckets per power of two, so that a quantile is exact to
# 1/16. A split bio ends once per part; at the last one __bi_remaining is 1. REQ_OP_WRITE is 1.
_BIO = """
config = { max_map_keys = 65536 }
fentry:vmlinux:submit_bio {
  $bio = (struct bio *)args.bio;
  if (($bio->bi_opf & 0xff) == 1) { @submitted[(uint64)args.bio] = nsecs; }
}
fentry:vmlinux:bio_endio /@submitted[(uint64)args.bio]/ {
  $bio = (struct bio *)args.bio;
  if ($bio->__bi_remaining.counter <= 1) {
    $device = (struct block_device *)$bio->bi_bdev;
    $disk = (struct gendisk *)$device->bd_disk;
    @bio_write[$disk->major, $disk->first_minor] =
        hist((nsecs - @submitted[(uint64)args.bio]) / 1000, 4);
    delete(@submitted[(uint64)args.bio]);
  }
}
"""
# rwbs of a write is W, with a preflush FW (blk_fill_rwbs); a flush without data has no sectors.
_REQUEST = """
tracepoint:block:block_rq_issue
/args.nr_sector > 0 && (strncmp(args.rwbs, "W", 1) == 0 || strncmp(args.rwbs, "FW", 2) == 0)/ {
  @issued[args.dev, args.sector] = nsecs;
}
tracepoint:block:block_rq_complete /@issued[args.dev, args.sector]/ {
  @request_write[args.dev >> 20, args.dev & 0xfffff] =
    hist((nsecs - @issued[args.dev, args.sector]) / 1000, 4);
  delete(@issued[args.dev, args.sector]);
}
"""
_PAUSE = """
tracepoint:writeback:balance_dirty_pages /args.pause > 0/ {
  @pauses[args.bdi] = count();
  @paused_ms[args.bdi] = sum(args.pause);
}
"""
_TICK = f"""
interval:ms:250 {{ print(@bio_write); print(@request_write);
  print(@pauses); print(@paused_ms); {TICK} }}
END {{ clear(@submitted); clear(@issued); }}
"""
_HISTOGRAMS = {"bio_write_us": "@bio_write", "block_write_us": "@request_write"}
_QUANTILES = {"p50": 0.5, "p99": 0.99}
Row = Mapping[str, Any]


def program() -> str:
    """Return the bpftrace program."""
    return _BIO + _REQUEST + _PAUSE + _TICK


def row_of(maps: Mapping[str, Mapping[str, Any]], maj_min: str) -> dict[str, Any]:
    """Return running totals of one disk: pauses, and histograms as rows of `{us, count}`.

    `us` is the upper end of a bucket.
    """
    key = maj_min.replace(":", ",")
    histograms: dict[str, Any] = {
        name: [
            {"us": b["max"], "count": b["count"]}
            for b in maps.get(map_name, {}).get(key, [])
            if b["count"]
        ]
        for name, map_name in _HISTOGRAMS.items()
    }
    return histograms | {
        name: maps.get(f"@{name}", {}).get(maj_min, 0) for name in ("pauses", "paused_ms")
    }


def responses_of(rows: Sequence[Row], start: float, end: float) -> dict[str, float | None]:
    """Return the figures from `start` to `end` (CLOCK_MONOTONIC).

    A latency is None without writes.
    """
    first, last = _enclosing(rows, start, end)
    if first is None or last is None:
        return {}
    responses: dict[str, float | None] = {
        "throttled_seconds": (last["paused_ms"] - first["paused_ms"]) / 1000
    }
    for name in _HISTOGRAMS:
        counts = _difference(first[name], last[name])
        prefix = name.removesuffix("_us")
        responses |= {
            f"{prefix}_{digits}_us": quantile(counts, share) for digits, share in _QUANTILES.items()
        }
    return responses


def _enclosing(rows: Sequence[Row], start: float, end: float) -> tuple[Row | None, Row | None]:
    """Return the last row at or before `start`, and the first at or after `end`."""
    before = [row for row in rows if row["t"] <= start]
    after = [row for row in rows if row["t"] >= end]
    return (before[-1] if before else None), (after[0] if after else None)


def _difference(first: Sequence[Row], last: Sequence[Row]) -> dict[float, int]:
    before = {bucket["us"]: bucket["count"] for bucket in first}
    return {bucket["us"]: bucket["count"] - before.get(bucket["us"], 0) for bucket in last}


def quantile(counts: Mapping[float, int], share: float) -> float | None:
    """Return the upper end of the bucket that contains the quantile; None if all counts are 0."""
    total, seen = sum(counts.values()), 0
    for upper in sorted(counts):
        seen += counts[upper]
        if total and seen >= share * total:
            return float(upper)
    return None


class BlockLatencyTracer(BpftraceProcess):
    """A tracer of the block layer's writes."""

    name = "blocklat"

    def __init__(self, directory: Path, children: ToolProcesses) -> None:
        super().__init__(directory / "blocklat.bt", program(), children)

    def excerpt(
        self, maj_min: str, start: float, path: Path
    ) -> tuple[CollectorResult, list[dict[str, Any]]]:
        """Write this disk's totals since the last tick before `start` (CLOCK_MONOTONIC).

        Return the rows too.
        """
        ticks = self.ticks_since(start)
        return self.keep(ticks, (row_of(tick.maps, maj_min) for tick in ticks), path), _timed(
            ticks, maj_min
        )


def _timed(ticks: Sequence[Tick], maj_min: str) -> list[dict[str, Any]]:
    return [{"t": tick.t, **row_of(tick.maps, maj_min)} for tick in ticks]
