"""The shapes in which providers say what a volume may do, as functions of its size and of what was bought.

Every figure is exact (a fraction): rates per GiB are seldom whole bytes, and nothing is rounded before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pagecage.units import GIB, MIB


@dataclass(frozen=True)
class Fixed:
    """The same at any size."""

    value: Fraction


@dataclass(frozen=True)
class Linear:
    """`base` and so much a GiB, kept between `least` and `most`."""

    per_gib: Fraction
    base: Fraction = Fraction(0)
    least: Fraction | None = None
    most: Fraction | None = None


@dataclass(frozen=True)
class Step:
    """What a volume up to this size has; None is nothing, and no size any size."""

    up_to_bytes: int | None
    value: Fraction | None


@dataclass(frozen=True)
class Steps:
    """A table by size: the first step that the volume fits in."""

    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Provisioned:
    """What was bought: `included` unless asked for (None: one has to ask), within the bounds and ratios."""

    most: Fraction
    included: Fraction | None = None
    least: Fraction = Fraction(0)
    least_per_gib: Fraction | None = None
    most_per_gib: Fraction | None = None
    most_per_iops: Fraction | None = None


@dataclass(frozen=True)
class PerIops:
    """Throughput that comes with the IOPS: so many bytes for each, kept between `least` and `most`."""

    per_iops: Fraction
    most: Fraction
    least: Fraction | None = None


@dataclass(frozen=True)
class PerThroughput:
    """IOPS that come with the throughput: so many for each MiB/s."""

    per_mib: Fraction
    most: Fraction | None = None


Formula = Fixed | Linear | Steps | Provisioned | PerIops | PerThroughput


@dataclass(frozen=True)
class Known:
    """What a formula may need: the size, what was bought of its quantity, and the volume's other quantity."""

    size_bytes: int = 0
    bought: Fraction | None = None
    other: Fraction | None = None


def evaluate(formula: Formula, known: Known) -> Fraction | None:
    """The figure in I/Os or bytes a second; None where the formula gives this volume nothing.

    Whether what was bought is allowed is not asked here: see `bounds`.
    """
    match formula:
        case Fixed(value):
            return value
        case Linear(per_gib, base, least, most):
            return clamp(base + per_gib * Fraction(known.size_bytes, GIB), least, most)
        case Steps(steps):
            fitting = [step.value for step in steps if step.up_to_bytes is None or known.size_bytes <= step.up_to_bytes]
            return fitting[0] if fitting else None
        case Provisioned(included=included):
            return known.bought if known.bought is not None else included
        case PerIops(per_iops, most, least):
            return None if known.other is None else clamp(per_iops * known.other, least, most)
        case PerThroughput(per_mib, most):
            return None if known.other is None else clamp(per_mib * known.other / MIB, None, most)


def bounds(formula: Provisioned, known: Known) -> tuple[Fraction, Fraction]:
    """The least and the most that may be bought for a volume of this size, with this much of the other quantity.

    What is included is allowed at any size.
    """
    size_gib, most = Fraction(known.size_bytes, GIB), formula.most
    if formula.most_per_gib is not None:
        most = min(most, formula.most_per_gib * size_gib)
    if formula.most_per_iops is not None and known.other is not None:
        most = min(most, formula.most_per_iops * known.other)
    least = max(formula.least, (formula.least_per_gib or Fraction(0)) * size_gib)
    return min(least, formula.most), max(most, formula.included or Fraction(0))


def greatest(formula: Formula | None) -> Fraction | None:
    """The most that any volume of the type can have; None where the type sets no bound."""
    match formula:
        case Fixed(value):
            return value
        case Steps(steps):
            return max((step.value for step in steps if step.value is not None), default=None)
        case Linear() | Provisioned() | PerIops() | PerThroughput():
            return formula.most
    return None


def clamp(value: Fraction, least: Fraction | None, most: Fraction | None) -> Fraction:
    """The value, no less than `least` and no more than `most`."""
    raised = value if least is None else max(value, least)
    return raised if most is None else min(raised, most)
