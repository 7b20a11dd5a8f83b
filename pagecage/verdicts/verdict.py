"""The verdicts on a trial: one word each, with a sentence that gives the figures behind it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Verdict:
    """One word from a fixed list (docs/METHODOLOGY.md) and a sentence that gives the reason."""

    verdict: str
    reason: str


@dataclass(frozen=True)
class LimitVerdict(Verdict):
    """The verdict on one systemd property: `enforced never_reached leaky not_applicable`.

    `cap`, `observed` and `calibrated` are in the property's unit: bytes, bytes per second, I/Os per
    second, or percent of one CPU. None means not known. `disk` is a disk of the cage beside the
    data directory's; None for any other limit.
    """

    property: str
    cap: int | None = None
    observed: float | None = None
    calibrated: float | None = None
    disk: str | None = None


def limit_title(limit: LimitVerdict) -> str:
    """Return the property, with its disk if that is not the data directory's."""
    return limit.property if limit.disk is None else f"{limit.property} of {limit.disk}"


@dataclass(frozen=True)
class BindingVerdict(Verdict):
    """The limit that held the trial back: `bandwidth iops memory cpu device none`.

    `shares` maps each limit to the share of the measured time in which it held the trial back.
    `caps` holds the same shares by systemd property, which separates reads from writes. A property
    of another disk than the data directory's is `DISK.PROPERTY`. Caps of several disks can be full
    at the same time.
    """

    shares: dict[str, float]
    caps: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Amplification(Verdict):
    """Bytes delivered per requested byte and per distinct byte; `known` or `unknown`."""

    per_requested_byte: float | None = None
    per_distinct_byte: float | None = None


@dataclass(frozen=True)
class TimeFloor(Verdict):
    """The least time in which the caps allow the I/O that the disk delivered; `known` or `unknown`.

    `closeness` is that time divided by the measured time.
    """

    floor_seconds: float | None = None
    closeness: float | None = None
