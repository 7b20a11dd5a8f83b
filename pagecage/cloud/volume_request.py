"""What a customer ordered, held against what the provider sells: the limits of that volume, or why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from pagecage.cloud.formulas import Formula, FormulaInput, PerThroughput, Provisioned, bounds, evaluate
from pagecage.cloud.offers import BurstRule, VolumeType
from pagecage.cloud.volume_limits import LimitLayer, VolumeLimits
from pagecage.errors import PagecageError
from pagecage.units import GIB, MIB, exact_size


@dataclass(frozen=True)
class VolumeRequest:
    """A volume as it was bought; None where nothing was said. Throughput is in bytes a second."""

    size_bytes: int | None = None
    iops: Fraction | None = None
    throughput: Fraction | None = None


@dataclass(frozen=True)
class _Quantities:
    """IOPS and throughput of one side, reads or writes; None where the volume sets no limit of its own."""

    iops: Fraction | None
    throughput: Fraction | None


def volume_limits(kind: VolumeType, order: VolumeRequest) -> VolumeLimits:
    """The layers that the volume itself sets. Raises PagecageError for what the provider would not sell."""
    size = _size(kind, order)
    _refuse_what_it_does_not_take(kind, order)
    reads = _side(kind, order, size, kind.read_iops, kind.read_throughput)
    writes = _side(kind, order, size, kind.write_iops, kind.write_throughput)
    return VolumeLimits(
        _layers(kind, reads, size, "iops"), _layers(kind, writes, size, "iops"),
        _layers(kind, reads, size, "throughput"), _layers(kind, writes, size, "throughput"),
    )  # fmt: skip


def in_unit(bytes_per_second: Fraction, unit_bytes: int) -> str:
    """A throughput as the provider would say it ("250 MiB/s")."""
    return f"{float(bytes_per_second / unit_bytes):g} {'MiB/s' if unit_bytes == MIB else 'MB/s'}"


def _size(kind: VolumeType, order: VolumeRequest) -> int:
    if kind.size is None:
        return order.size_bytes or 0
    if order.size_bytes is None:
        raise PagecageError(f"the limits of {kind.name} depend on its size, and none is given", "--size 500GiB")
    least, most, asked = kind.size.least_bytes, kind.size.most_bytes, order.size_bytes
    if not least <= asked <= most:
        raise PagecageError(
            f"{kind.name} is sold from {_spaced(least)} to {_spaced(most)}, and {_spaced(asked)} were asked for",
            f"--size {exact_size(least if asked < least else most)}",
        )
    if asked % kind.size.step_bytes:
        below = asked // kind.size.step_bytes * kind.size.step_bytes
        said = f"{kind.name} is sold in steps of {_spaced(kind.size.step_bytes)}"
        raise PagecageError(
            f"{said}, and {_spaced(asked)} are {asked / GIB:.2f} GiB",
            f"--size {below // GIB}GiB, or {below // GIB + 1}GiB",
        )
    return asked


def _spaced(count: int) -> str:
    return exact_size(count, " ")


def _refuse_what_it_does_not_take(kind: VolumeType, order: VolumeRequest) -> None:
    for option, asked, formula in (
        ("--iops", order.iops, kind.read_iops), ("--throughput", order.throughput, kind.read_throughput),
    ):  # fmt: skip
        if asked is not None and not isinstance(formula, Provisioned):
            why = "the instance sets" if formula is None else "its size and type set"
            raise PagecageError(f"{kind.name} takes no {option}: {why} what it has", f"leave {option} out")


def _side(
    kind: VolumeType, order: VolumeRequest, size: int, iops: Formula | None, throughput: Formula | None
) -> _Quantities:
    """One of them may follow from the other, so that other comes first."""
    if isinstance(iops, PerThroughput):
        second = _throughput(kind, order, size, throughput, None)
        return _Quantities(evaluate(iops, FormulaInput(size, None, second)), second)
    first = _iops(kind, order, size, iops)
    return _Quantities(first, _throughput(kind, order, size, throughput, first))


def _iops(kind: VolumeType, order: VolumeRequest, size: int, formula: Formula | None) -> Fraction | None:
    if isinstance(formula, Provisioned):
        least, most = bounds(formula, FormulaInput(size))
        asked = order.iops if order.iops is not None else formula.included
        if asked is None:
            raise PagecageError(f"{kind.name} has the IOPS that were bought, and none are given", f"--iops {int(most)}")
        if not least <= asked <= most:
            said = f"{kind.name} of {_spaced(size)} may have {math.ceil(least)} to {int(most)} IOPS"
            hint = f"--iops {math.ceil(least) if asked < least else int(most)}{_or_larger(kind, formula, asked)}"
            raise PagecageError(f"{said}, and {int(asked)} were asked for", hint)
    return None if formula is None else evaluate(formula, FormulaInput(size, order.iops))


def _or_larger(kind: VolumeType, formula: Provisioned, asked: Fraction) -> str:
    """The size that would allow the IOPS asked for, where there is one."""
    if kind.size is None or formula.most_per_gib is None or not formula.least <= asked <= formula.most:
        return ""
    size_gib = max(math.ceil(asked / formula.most_per_gib), kind.size.least_bytes // GIB)
    return f", or --size {size_gib}GiB" if size_gib * GIB <= kind.size.most_bytes else ""


def _throughput(
    kind: VolumeType, order: VolumeRequest, size: int, formula: Formula | None, iops: Fraction | None
) -> Fraction | None:
    if isinstance(formula, Provisioned):
        least, most = bounds(formula, FormulaInput(size, None, iops))
        asked, unit = order.throughput, kind.throughput_unit_bytes
        asked = formula.included if asked is None else asked
        if asked is None:
            said = f"{kind.name} has the throughput that was bought, and none is given"
            raise PagecageError(said, f"--throughput {float(most / unit):g}")
        if not least <= asked <= most:
            with_ = f" with {int(iops)} IOPS" if iops is not None and formula.most_per_iops else ""
            said = f"{kind.name}{with_} may have {float(least / unit):g} to {in_unit(most, unit)}"
            hint = f"--throughput {float((least if asked < least else most) / unit):g}"
            more = _or_more_iops(kind, formula, size, asked)
            raise PagecageError(f"{said}, and {in_unit(asked, unit)} were asked for", hint + more)
    return None if formula is None else evaluate(formula, FormulaInput(size, order.throughput, iops))


def _or_more_iops(kind: VolumeType, formula: Provisioned, size: int, asked: Fraction) -> str:
    """The IOPS that would allow the throughput asked for, where this size may have them."""
    if not (
        formula.most_per_iops and isinstance(kind.read_iops, Provisioned) and formula.least <= asked <= formula.most
    ):
        return ""
    wanted = math.ceil(asked / formula.most_per_iops)
    return f", or --iops {wanted}" if wanted <= bounds(kind.read_iops, FormulaInput(size))[1] else ""


def _layers(kind: VolumeType, side: _Quantities, size: int, quantity: str) -> tuple[LimitLayer, ...]:
    base = side.iops if quantity == "iops" else side.throughput
    if base is None:
        return ()
    rule = kind.iops_burst if quantity == "iops" else kind.throughput_burst
    return (_layer(kind.name, base, rule, FormulaInput(size)),)


def _layer(by: str, base: Fraction, rule: BurstRule | None, known: FormulaInput) -> LimitLayer:
    """With its bucket, where it has one and the burst is faster than the base."""
    rate = evaluate(rule.rate, known) if rule else None
    if rule is None or rate is None or rate <= base:
        return LimitLayer(by, base)
    if rule.seconds is not None:
        return LimitLayer(by, base, rate, (rate - base) * rule.seconds)
    return LimitLayer(by, base, rate, evaluate(rule.credits, known) if rule.credits else None)
