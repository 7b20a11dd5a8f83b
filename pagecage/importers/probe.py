"""What `pcprobe` measured, as a cage: plateaus become caps, a drop becomes a bucket, a lone I/O's latency a floor.

A figure that the probe has no proof of is null there, with its reason; it becomes no limit here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pagecage.errors import PagecageError
from pagecage.importers.document import Document, rows, table
from pagecage.importers.result import ImportedLimit, ImportResult, Selection, UnsupportedLimit
from pagecage.model.cage import IO_MAX_KEY
from pagecage.units import exact_size

VERSION = 1
# A cage's key, the summary's figure, and the phase that gave it.
_CAPS = (
    ("IOReadBandwidthMax", "sequential_read_bytes_per_second", "sequential_read"),
    ("IOWriteBandwidthMax", "sequential_write_bytes_per_second", "sequential_write"),
    ("IOReadIOPSMax", "random_read_ios_per_second", "random_read_sustained"),
    ("IOWriteIOPSMax", "random_write_ios_per_second", "random_write_sustained"),
)
_LIMITS = (("MemoryMax", "memory_max_bytes"), ("CPUQuota", "cpu_quota_percent"))
DIGITS = 2
# A cap in the cgroup's own files counts where the disk came so near to it; else something else was tighter.
REACHED = 0.9


@dataclass(frozen=True)
class Rounding:
    """To how many significant digits a measured figure is rounded: a cap of 500 is measured as 497.3."""

    digits: int = DIGITS

    def __call__(self, measured: float) -> int:
        """The rounded figure, at least 1."""
        return max(1, round(float(f"{measured:.{self.digits}g}")))


def recognise(document: Document) -> bool:
    """Whether it is a probe's JSON."""
    return table(document.tree).get("type") == "probe" and "probe_version" in document.tree


def read(document: Document, picks: Selection, rounding: Rounding) -> ImportResult:  # noqa: ARG001 - as all read
    """The cage of one probe. Raises PagecageError for a version that this program does not know."""
    tree = table(document.tree)
    if tree["probe_version"] != VERSION:
        raise PagecageError(
            f"the probe's format is version {tree['probe_version']}, not {VERSION}", "use one release of both"
        )
    phases = {str(phase.get("name")): phase for phase in rows(tree.get("phases") or []) if _counts(phase)}
    carried = (*_caps(tree, rounding), *_bursts(phases, rounding), *_latency(tree, rounding), *_cgroup(tree))
    return ImportResult(
        "a probe", "What a probe measured on a customer's disk.", carried, tuple(_lost(tree, phases)),
        ("machine", "storage", "engine", "rates"),
    )  # fmt: skip


def _counts(phase: dict[str, Any]) -> bool:
    """The long phases; a step of a certain depth is no plateau."""
    return phase.get("name") not in ("random_read", "random_write")


def _caps(tree: dict[str, Any], rounding: Rounding) -> Iterator[ImportedLimit]:
    known = table(tree, "cgroup", "io")
    for key, figure, _ in _CAPS:
        measured, cap = table(tree, "summary").get(figure), known.get(IO_MAX_KEY[key])
        if measured and cap and measured >= REACHED * cap:
            value = exact_size(cap) if figure.endswith("bytes_per_second") else int(cap)
            yield ImportedLimit(
                key, value, f"the cgroup's own limit, of which {100 * measured / cap:.1f} % were measured"
            )
        elif measured:
            rounded = rounding(measured)
            is_bytes = figure.endswith("bytes_per_second")
            value = exact_size(rounded) if is_bytes else rounded
            said = f"{measured / 1e6:.2f} MB/s" if is_bytes else f"{measured:.1f} I/Os a second"
            yield ImportedLimit(key, value, f"measured {said}, rounded to {rounding.digits} digits")


def _bursts(phases: dict[str, dict[str, Any]], rounding: Rounding) -> Iterator[ImportedLimit]:
    """A bucket held at least what was taken out of it, and began the phase less full than it may be."""
    if burst := table(phases.get("random_read_sustained"), "burst"):
        yield from _bucket("iops", burst, "ios_per_second", "credits_at_least", rounding)
    if burst := table(phases.get("sequential_read"), "burst"):
        yield from _bucket("bandwidth", burst, "bytes_per_second", "credits_at_least_bytes", rounding)


def _bucket(name: str, burst: dict[str, Any], unit: str, held: str, rounding: Rounding) -> Iterator[ImportedLimit]:
    rate, credits_ = rounding(burst[f"burst_{unit}"]), rounding(burst[held])
    if rate <= rounding(burst[f"base_{unit}"]):
        return
    said = f"it fell after {burst['seconds']:.1f} s; the bucket held at least that much"
    as_bytes = name == "bandwidth"
    yield ImportedLimit(f"burst.{name}.rate", exact_size(rate) if as_bytes else rate, said)
    yield ImportedLimit(f"burst.{name}.credits", exact_size(credits_) if as_bytes else credits_, said)


def _latency(tree: dict[str, Any], rounding: Rounding) -> Iterator[ImportedLimit]:
    """The median of a lone I/O; what its cap delays is in the percentiles above."""
    for way in ("read", "write"):
        median = table(tree, "summary", f"{way}_latency_us").get("p50")
        if median:
            yield ImportedLimit(f"latency.{way}_us", rounding(median), f"median of a lone 4 KiB {way}, {median:.0f} us")


def _cgroup(tree: dict[str, Any]) -> Iterator[ImportedLimit]:
    for key, name in _LIMITS:
        value = table(tree, "cgroup").get(name)
        if value:
            is_bytes = name.endswith("bytes")
            yield ImportedLimit(
                key, exact_size(value) if is_bytes else max(1, round(value)), f"cgroup {name} = {value:g}"
            )


def _lost(tree: dict[str, Any], phases: dict[str, dict[str, Any]]) -> Iterator[UnsupportedLimit]:
    if not tree.get("complete"):
        yield UnsupportedLimit("the rest of the probe", "it was interrupted")
    for key, _, name in _CAPS:
        reason = table(phases.get(name)).get("reason")
        if reason:
            yield UnsupportedLimit(key, str(reason))
    if table(tree, "cgroup").get("memory_high_bytes"):
        yield UnsupportedLimit("memory.high", "it slows a program down before its limit, and a cage has only the limit")
    yield UnsupportedLimit("whether reads and writes share one limit", "the probe never does both at a time")
