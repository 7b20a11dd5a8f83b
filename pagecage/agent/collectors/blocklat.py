"""A bpftrace program that measures the latency of writes, and the throttling of writers.

There are two histograms, because a cgroup's limit delays writes before they become requests
(block/blk-throttle.c):

* from submit_bio to bio_endio, which includes the wait for the limit;
* from block_rq_issue to block_rq_complete, which is the disk's own time.

Throttling is the pauses of balance_dirty_pages() for tasks that dirty pages faster than the disk
can write (Documentation/admin-guide/sysctl/vm.rst, dirty_bytes; tracepoint
writeback:balance_dirty_pages).

No tracepoint lies before the wait for a cgroup's limit: block_bio_queue comes after it. Without
fentry and kprobes there is only the second histogram.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pagecage.agent.collectors.collector import CollectorContext, CollectorResult, Figures
from pagecage.agent.collectors.tracer import BpftraceProcess, Part, TracerProgram, Variant, programs
from pagecage.agent.facts import Kernel
from pagecage.model.json_codec import Json, JsonView

# 16 buckets per power of two, so that a quantile is exact to 1/16: VALUE is shifted until it has
# five bits, and counted by the shifts and what remains. hist() has only whole powers of two before
# bpftrace 0.20.
_BUCKET = """
  $us = VALUE / 1000; $shifts = (uint64)0;
  unroll(26) { if ($us >= 32) { $us = $us >> 1; $shifts = $shifts + 1; } }
"""
# A split bio ends once per part; at the last one __bi_remaining is 1. REQ_OP_WRITE is 1.
_BIO = """
FENTRY:submit_bio {
  $bio = (struct bio *)BIO;
  if (($bio->bi_opf & 0xff) == 1) { @submitted[(uint64)BIO] = nsecs; }
}
FENTRY:bio_endio /@submitted[(uint64)BIO]/ {
  $bio = (struct bio *)BIO;
  if ($bio->__bi_remaining.counter <= 1) {
    $device = (struct block_device *)$bio->bi_bdev;
    $disk = (struct gendisk *)$device->bd_disk;
BUCKET
    @bio_write[(uint64)$disk->major, (uint64)$disk->first_minor, $shifts, $us] = count();
    delete(@submitted[(uint64)BIO]);
  }
}
""".replace("BUCKET", _BUCKET.replace("VALUE", "(nsecs - @submitted[(uint64)BIO])"))
# rwbs of a write is W, with a preflush FW (blk_fill_rwbs); a flush without data has no sectors.
_REQUEST = """
tracepoint:block:block_rq_issue
/args.nr_sector > 0 && (strncmp(args.rwbs, "W", 1) == 0 || strncmp(args.rwbs, "FW", 2) == 0)/ {
  @issued[args.dev, args.sector] = nsecs;
}
tracepoint:block:block_rq_complete /@issued[args.dev, args.sector]/ {
BUCKET
  @request_write[(uint64)args.dev >> 20, (uint64)args.dev & 0xfffff, $shifts, $us] = count();
  delete(@issued[args.dev, args.sector]);
}
""".replace("BUCKET", _BUCKET.replace("VALUE", "(nsecs - @issued[args.dev, args.sector])"))
_PAUSE = """
tracepoint:writeback:balance_dirty_pages /args.pause > 0/ {
  @pauses[args.bdi] = count();
  @paused_ms[args.bdi] = sum(args.pause);
}
"""
_OF_BIO = ("submit_bio", "bio_endio")
_BY_FENTRY = _BIO.replace("FENTRY", "fentry:vmlinux").replace("BIO", "args.bio")
_BY_KPROBE = _BIO.replace("FENTRY", "kprobe").replace("BIO", "arg0")
_REQUESTS = {
    "block:block_rq_issue": frozenset({"dev", "sector", "nr_sector", "rwbs"}),
    "block:block_rq_complete": frozenset({"dev", "sector"}),
}
_PAUSES = {"writeback:balance_dirty_pages": frozenset({"bdi", "pause"})}
PARTS = (
    Part(
        "bio_write_us",
        ("@bio_write",),
        {"fentry": Variant(_BY_FENTRY, _OF_BIO), "kprobe": Variant(_BY_KPROBE, _OF_BIO)},
    ),
    Part("block_write_us", ("@request_write",), {"tracepoint": Variant(_REQUEST, (), _REQUESTS)}),
    Part("pauses", ("@pauses", "@paused_ms"), {"tracepoint": Variant(_PAUSE, (), _PAUSES)}),
)
_TOTALS = ("pauses", "paused_ms")
_HISTOGRAMS = {"bio_write_us": "@bio_write", "block_write_us": "@request_write"}
_QUANTILES = {"p50": 0.5, "p99": 0.99}
Row = JsonView


def row_of(maps: Mapping[str, Mapping[str, int]], maj_min: str, program: TracerProgram) -> Json:
    """Return running totals of one disk: pauses, and histograms as rows of `{us, count}`.

    `us` is the upper end of a bucket. Only what the program fills is present.
    """
    row: Json = {}
    for name in (name for name, map_name in _HISTOGRAMS.items() if map_name in program.maps):
        buckets = []
        for key, count in maps.get(_HISTOGRAMS[name], {}).items():
            major, minor, shifts, us = map(int, key.split(","))
            if f"{major}:{minor}" == maj_min:
                buckets.append({"us": (us + 1 << shifts) - 1, "count": count})
        row[name] = sorted(buckets, key=lambda bucket: bucket["us"])
    totals = (name for name in _TOTALS if f"@{name}" in program.maps)
    return row | {name: maps.get(f"@{name}", {}).get(maj_min, 0) for name in totals}


def responses_of(rows: Sequence[Row], start: float, end: float) -> dict[str, float | None]:
    """Return the figures from `start` to `end` (CLOCK_MONOTONIC).

    A latency is None without writes, and absent if the kernel could not be asked.
    """
    before = [row for row in rows if row["t"] <= start]
    after = [row for row in rows if row["t"] >= end]
    if not before or not after:
        return {}
    first, last = before[-1], after[0]
    responses: dict[str, float | None] = {}
    if "paused_ms" in last:
        responses["throttled_seconds"] = (last["paused_ms"] - first["paused_ms"]) / 1000
    for name in (name for name in _HISTOGRAMS if name in last):
        was = {bucket["us"]: bucket["count"] for bucket in first[name]}
        counts = {one["us"]: one["count"] - was.get(one["us"], 0) for one in last[name]}
        prefix = name.removesuffix("_us")
        responses |= {
            f"{prefix}_{digits}_us": quantile(counts, share) for digits, share in _QUANTILES.items()
        }
    return responses


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

    name, script = "blocklat", "blocklat.bt"

    def programs(self) -> Iterator[TracerProgram]:
        return programs(PARTS, Kernel())

    def excerpt(self, maj_min: str, start: float, path: Path) -> tuple[CollectorResult, list[Json]]:
        """Write this disk's totals since the last tick before `start`; return the rows too."""
        ticks = self.ticks_since(start)
        rows = [row_of(tick.maps, maj_min, self.program) for tick in ticks]
        timed = [{"t": tick.t, **row} for tick, row in zip(ticks, rows, strict=True)]
        return self.keep(ticks, rows, path), timed

    def take(
        self, context: CollectorContext, launched: float, measured: tuple[float, float] | None
    ) -> tuple[CollectorResult, Figures]:
        self.wait_for_tick()
        path = context.directory / "blocklat.jsonl"
        result, rows = self.excerpt(context.disk.maj_min, launched, path)
        return result, responses_of(rows, *measured) if measured else {}
