"""Results of `pcprobe` as a cage.

A sustained rate becomes a cap, a drop of the rate becomes a credit bucket, and the latency of
single I/Os becomes the least latency. A figure that the probe could not prove is null, with a
reason; it does not become a limit.
"""

from __future__ import annotations

from collections.abc import Iterator

from pagecage.errors import PagecageError
from pagecage.importers.document import Document, Table, rows, table
from pagecage.importers.result import (
    ImportedLimit,
    Importer,
    ImportResult,
    Rounding,
    Selection,
    UnsupportedLimit,
)
from pagecage.model.cage import IO_MAX_KEY
from pagecage.units import exact_size

VERSION = 1
# Key of the cage, figure of the summary, and the phase that measured it.
_CAPS = (
    ("IOReadBandwidthMax", "sequential_read_bytes_per_second", "sequential_read"),
    ("IOWriteBandwidthMax", "sequential_write_bytes_per_second", "sequential_write"),
    ("IOReadIOPSMax", "random_read_ios_per_second", "random_read_sustained"),
    ("IOWriteIOPSMax", "random_write_ios_per_second", "random_write_sustained"),
)
_CGROUP_LIMITS = (
    ("MemoryMax", "memory_max_bytes"),
    ("MemoryHigh", "memory_high_bytes"),
    ("CPUQuota", "cpu_quota_percent"),
)
# Table of the cage, phase that measured it, unit of its rates, and figure of its credits.
_BUCKETS = (
    ("iops", "random_read_sustained", "ios_per_second", "credits_at_least"),
    ("bandwidth", "sequential_read", "bytes_per_second", "credits_at_least_bytes"),
)
REACHED = 0.9
"""Least measured share of a cap in the cgroup's files that makes it the cage's cap."""


def recognise(document: Document) -> bool:
    return table(document.tree).get("type") == "probe" and "probe_version" in document.tree


def read(document: Document, selection: Selection) -> ImportResult:
    """Read the results of one probe. Raises PagecageError for an unknown version of the format."""
    tree, rounding = table(document.tree), selection.rounding
    if tree["probe_version"] != VERSION:
        message = f"the probe's format is version {tree['probe_version']}, not {VERSION}"
        raise PagecageError(message, "use pcprobe and pagecage of the same release")
    phases = {
        str(phase.get("name")): phase
        for phase in rows(tree.get("phases") or [])
        if phase.get("name") not in ("random_read", "random_write")  # too short for a lasting rate
    }
    return ImportResult(
        "a probe",
        "The limits that a probe measured on a customer's disk.",
        (
            *_caps(tree, rounding),
            *_bursts(phases, rounding),
            *_latency_and_cgroup(tree, rounding),
        ),
        tuple(_unsupported(tree, phases)),
        ("machine", "storage", "engine", "rates"),
    )


def _caps(tree: Table, rounding: Rounding) -> Iterator[ImportedLimit]:
    known = table(tree, "cgroup", "io")
    for key, figure, _ in _CAPS:
        measured, cap = table(tree, "summary").get(figure), known.get(IO_MAX_KEY[key])
        if measured and cap and measured >= REACHED * cap:
            value = exact_size(cap) if figure.endswith("bytes_per_second") else int(cap)
            basis = f"the limit of the cgroup; {100 * measured / cap:.1f} % of it were measured"
            yield ImportedLimit(key, value, basis)
        elif measured:
            rounded = rounding(measured)
            is_bytes = figure.endswith("bytes_per_second")
            value = exact_size(rounded) if is_bytes else rounded
            rate = f"{measured / 1e6:.2f} MB/s" if is_bytes else f"{measured:.1f} I/Os per second"
            yield ImportedLimit(key, value, f"measured {rate}, rounded to {rounding.digits} digits")


def _bursts(phases: dict[str, Table], rounding: Rounding) -> Iterator[ImportedLimit]:
    for name, phase, unit, held in _BUCKETS:
        burst = table(phases.get(phase), "burst")
        if not burst:
            continue
        rate, credits_ = rounding(burst[f"burst_{unit}"]), rounding(burst[held])
        if rate <= rounding(burst[f"base_{unit}"]):
            continue
        basis = (
            f"the rate fell after {burst['seconds']:.1f} s; the bucket held at least the credits"
            " used until then"
        )
        for key, value in (("rate", rate), ("credits", credits_)):
            written = exact_size(value) if name == "bandwidth" else value
            yield ImportedLimit(f"burst.{name}.{key}", written, basis)


def _latency_and_cgroup(tree: Table, rounding: Rounding) -> Iterator[ImportedLimit]:
    for direction in ("read", "write"):
        # The medians: delays by a cap appear only in higher percentiles.
        median = table(tree, "summary", f"{direction}_latency_us").get("p50")
        if median:
            basis = f"median of single 4 KiB {direction}s, {median:.0f} us"
            yield ImportedLimit(f"latency.{direction}_us", rounding(median), basis)
    for key, name in _CGROUP_LIMITS:
        value = table(tree, "cgroup").get(name)
        if value:
            limit = exact_size(value) if name.endswith("bytes") else max(1, round(value))
            yield ImportedLimit(key, limit, f"cgroup {name} = {value:g}")


def _unsupported(tree: Table, phases: dict[str, Table]) -> Iterator[UnsupportedLimit]:
    if not tree.get("complete"):
        yield UnsupportedLimit("the rest of the probe", "it was interrupted")
    for key, _, name in _CAPS:
        reason = table(phases.get(name)).get("reason")
        if reason:
            yield UnsupportedLimit(key, str(reason))
    reason = "the probe does not read and write at the same time"
    yield UnsupportedLimit("a limit that reads and writes share", reason)


IMPORTERS = (Importer(recognise, read),)
