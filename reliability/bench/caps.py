"""The accuracy of caps against a deep queue of direct reads."""

from __future__ import annotations

import json
from collections.abc import Iterator

from reliability.bench.bed import Bed, Figure, single_figure
from reliability.campaign import tell

SECONDS = 10
# property, value, and the read that exceeds it
CAPS = (
    ("IOReadBandwidthMax", 20_000_000, "read", "256k", 16),
    ("IOReadBandwidthMax", 200_000_000, "read", "256k", 16),
    ("IOReadIOPSMax", 500, "randread", "4k", 64),
    ("IOReadIOPSMax", 5_000, "randread", "4k", 64),
)


def measure(bed: Bed) -> Iterator[Figure]:
    """Measure one figure per cap: achieved / cap over ten seconds. The best is 1, because the first
    slice of 0.1 s passes freely.
    """
    return (_held(bed, *cap) for cap in CAPS)


def _held(bed: Bed, name: str, cap: int, pattern: str, block: str, depth: int) -> Figure:
    tell(f"driving {name}={cap}")
    scope = ("systemd-run", *["--user"] * bool(bed.host.user), "--scope", "--quiet")
    done = bed.run(
        *(*scope, "-p", f"{name}={bed.host.data_dir} {cap}", "fio", "--name=cap"),
        *(f"--filename={bed.dataset}", f"--rw={pattern}", f"--bs={block}", f"--iodepth={depth}"),
        *("--ioengine=libaio", "--direct=1", "--readonly", "--time_based"),
        *(f"--runtime={SECONDS}", "--output-format=json"),
    )
    read = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]
    achieved = (read["io_bytes"] if "Bandwidth" in name else read["total_ios"]) / (
        read["runtime"] / 1000
    )
    ratio = achieved / cap
    says = (
        f"{achieved:,.0f} of {cap:,} {'bytes' if 'Bandwidth' in name else 'I/Os'} a second for"
        f" {SECONDS} s"
    )
    is_met = 0.985 <= ratio <= 1.015
    return single_figure(f"{name}={cap}", ratio, "0.985 to 1.015", is_met, says)
