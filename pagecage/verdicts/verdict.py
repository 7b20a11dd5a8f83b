"""What every verdict has in common: one word, and the sentence with the figures it rests on."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Verdict:
    """One word from a fixed list (docs/METHODOLOGY.md) and one plain sentence saying why."""

    verdict: str
    reason: str


@dataclass(frozen=True)
class LimitVerdict(Verdict):
    """Whether one systemd property was in force: `enforced never_reached leaky not_applicable`.

    `cap`, `observed`, `calibrated` are in its unit (bytes, bytes/s, I/Os per second, % of one CPU).
    """

    property: str
    cap: int | None = None
    observed: float | None = None
    calibrated: float | None = None


@dataclass(frozen=True)
class BindingVerdict(Verdict):
    """Which limit held the trial back (`bandwidth iops memory cpu device none`), and each one's share of time.

    `caps` are the same shares by systemd property, so that reads and writes stand apart.
    """

    shares: dict[str, float]
    caps: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Amplification(Verdict):
    """Device bytes per byte asked for, and per distinct byte asked for; `known` or `unknown`."""

    per_requested_byte: float | None = None
    per_distinct_byte: float | None = None


@dataclass(frozen=True)
class TimeFloor(Verdict):
    """The least time the caps allow for what the disk delivered; `closeness`: that over the time taken."""

    floor_seconds: float | None = None
    closeness: float | None = None
