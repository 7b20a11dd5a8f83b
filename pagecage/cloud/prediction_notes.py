"""Sentences on the assumptions of predictions, and on what widens their ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pagecage.cloud.comparison import VolumeRow
from pagecage.cloud.run_prediction import COVERED
from pagecage.units import KIB, format_hours
from pagecage.verdicts.io_demand import IoDemand

_SMALL_BYTES = 16 * KIB
"""The smallest unit by which a provider counts I/Os. A smaller request counts once anywhere."""


def drained_notes(rows: Sequence[VolumeRow]) -> list[str]:
    """Return a sentence for each volume whose credits are used up within the run."""
    return [
        f"{row.kind.name}: the {cause.limit} credits of {cause.by} are used up after"
        f" {format_hours(seconds)}."
        for row in rows
        for cause, seconds in row.prediction.drained.items()
    ]


def prediction_notes(rows: Sequence[VolumeRow], demands: Sequence[IoDemand]) -> list[str]:
    """Return the sentences that hold for all treatments, each once."""
    return [
        f"A range covered {COVERED:.0%} of the stored trials that were predicted from another cage"
        " (docs/CLOUD.md). It also covers what is unknown about the volume.",
        "Memory and CPU are those of the run.",
        *_latency_notes(rows, demands),
        *_counting_notes(rows, demands),
        "The catalogue has no prices: the volumes are in the order of their lasting rates.",
    ]


def _latency_notes(rows: Sequence[VolumeRow], demands: Sequence[IoDemand]) -> Iterator[str]:
    """Yield the assumed latencies, if any trial shows how long its requests took."""
    if all(demand.latency_seconds is None for demand in demands):
        yield "The run does not show how long a request took, so latency is that of its disk."
        return
    groups: dict[tuple[float, float, str], list[str]] = {}
    for row in rows:
        bounds = (row.latency.least[0], row.latency.greatest[0], _origin(row))
        groups.setdefault(bounds, []).append(row.kind.name)
    if all(least == greatest for least, greatest, _ in groups):
        yield f"A request takes {next(iter(groups))[0] * 1e6:.0f} us, as --latency-us says."
        return
    parts = [
        f"{least * 1e3:.2g} to {greatest * 1e3:.2g} ms {origin} ({', '.join(names)})"
        for (least, greatest, origin), names in sorted(groups.items())
    ]
    yield f"A read takes {'; '.join(parts)}."
    yield (
        "The expected time takes the measured mean, or else the latency of the run as far as it is"
        " within these bounds. --latency-us replaces them."
    )


def _origin(row: VolumeRow) -> str:
    """Return what the bounds of the latency of reads rest on."""
    if row.latency.measured[0] is not None:
        return "as users measured"
    return "where the provider states nothing" if row.kind.latency is None else "as stated"


def _counting_notes(rows: Sequence[VolumeRow], demands: Sequence[IoDemand]) -> Iterator[str]:
    kinds = [row.kind for row in rows]
    merging = sorted({kind.provider for kind in kinds if kind.accounting.merged})
    if merging:
        yield (
            f"Neighbouring requests may count as one ({', '.join(merging)}): the low ends assume"
            " that all are neighbours, the expected time that none are."
        )
    unstated = [kind.name for kind in kinds if kind.accounting.io_size_bytes is None]
    if unstated and any(demand.request_bytes > _SMALL_BYTES for demand in demands):
        yield f"It is not stated how a large request counts; it counts once: {', '.join(unstated)}."
    unknown = [kind.name for kind in kinds if kind.accounting.combined is None]
    if unknown and any(demand.total("rios") and demand.total("wios") for demand in demands):
        yield (
            "It is not stated whether reads and writes share a limit; only the low ends assume"
            f" that they do not: {', '.join(unknown)}."
        )
