"""The limits of a requested volume, or the reason why the provider does not sell it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from pagecage.cloud.catalogue import BurstRule, VolumeType
from pagecage.cloud.formulas import (
    Formula,
    FormulaInput,
    LimitLayer,
    PerThroughputFormula,
    ProvisionedFormula,
    VolumeLimits,
)
from pagecage.errors import PagecageError
from pagecage.units import GIB, MIB, exact_size, parse_exact_bytes


@dataclass(frozen=True)
class VolumeRequest:
    """A volume as bought, with throughput in bytes per second; None means not given."""

    size_bytes: int | None = None
    iops: Fraction | None = None
    throughput: Fraction | None = None


def volume_limits(kind: VolumeType, request: VolumeRequest) -> VolumeLimits:
    """Return the volume's own layers. Raises PagecageError if the provider does not sell it."""
    size = _checked_size(kind, request)
    for option, value, formula in (
        ("--iops", request.iops, kind.read_iops),
        ("--throughput", request.throughput, kind.read_throughput),
    ):
        if value is not None and not isinstance(formula, ProvisionedFormula):
            reason = "the instance decides" if formula is None else "its size and type decide"
            reason = f"{kind.name} does not take {option}, because {reason}"
            raise PagecageError(reason, f"leave out {option}")
    read_iops, reads = _rates(kind, request, size, kind.read_iops, kind.read_throughput)
    write_iops, writes = _rates(kind, request, size, kind.write_iops, kind.write_throughput)
    return VolumeLimits(
        _layers(kind, read_iops, kind.iops_burst, size),
        _layers(kind, write_iops, kind.iops_burst, size),
        _layers(kind, reads, kind.throughput_burst, size),
        _layers(kind, writes, kind.throughput_burst, size),
    )


def parse_throughput(text: str, kind: VolumeType) -> Fraction:
    """Return bytes per second; a number without a unit is in the provider's unit."""
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return Fraction(text) * kind.throughput_unit_bytes
    return parse_exact_bytes(text, "--throughput")


def in_unit(bytes_per_second: Fraction, unit_bytes: int) -> str:
    return f"{float(bytes_per_second / unit_bytes):g} {'MiB/s' if unit_bytes == MIB else 'MB/s'}"


def _checked_size(kind: VolumeType, request: VolumeRequest) -> int:
    if kind.size is None:
        return request.size_bytes or 0
    if request.size_bytes is None:
        reason = f"the limits of {kind.name} depend on its size, and none is given"
        raise PagecageError(reason, "--size 500GiB")
    least, most, size = kind.size.least_bytes, kind.size.most_bytes, request.size_bytes
    if not least <= size <= most:
        raise PagecageError(
            f"{kind.name} is sold from {_format_size(least)} to {_format_size(most)}, not with"
            f" {_format_size(size)}",
            f"--size {exact_size(least if size < least else most)}",
        )
    if size % kind.size.step_bytes:
        below = size // kind.size.step_bytes * kind.size.step_bytes
        steps = f"{kind.name} is sold in steps of {_format_size(kind.size.step_bytes)}"
        reason = f"{steps}, and {_format_size(size)} are {size / GIB:.2f} GiB"
        raise PagecageError(reason, f"--size {below // GIB}GiB, or {below // GIB + 1}GiB")
    return size


def _format_size(count: int) -> str:
    return exact_size(count, " ")


def _rates(
    kind: VolumeType,
    request: VolumeRequest,
    size: int,
    iops: Formula | None,
    throughput: Formula | None,
) -> tuple[Fraction | None, Fraction | None]:
    """Return IOPS and throughput of one direction; None if the volume sets no limit of its own."""
    if isinstance(iops, PerThroughputFormula):
        bandwidth = _throughput(kind, request, size, throughput, None)
        return iops.evaluate(FormulaInput(size, None, bandwidth)), bandwidth
    ios = _iops(kind, request, size, iops)
    return ios, _throughput(kind, request, size, throughput, ios)


def _iops(
    kind: VolumeType, request: VolumeRequest, size: int, formula: Formula | None
) -> Fraction | None:
    if isinstance(formula, ProvisionedFormula):
        least, most = formula.bounds(FormulaInput(size))
        value = request.iops if request.iops is not None else formula.included
        if value is None:
            reason = f"{kind.name} needs its provisioned IOPS, and none are given"
            raise PagecageError(reason, f"--iops {int(most)}")
        if not least <= value <= most:
            allowed = f"may have {math.ceil(least)} to {int(most)} IOPS"
            nearest = math.ceil(least) if value < least else int(most)
            reason = f"{kind.name} of {_format_size(size)} {allowed}, not {int(value)}"
            raise PagecageError(reason, f"--iops {nearest}{_or_larger(kind, formula, value)}")
    return None if formula is None else formula.evaluate(FormulaInput(size, request.iops))


def _or_larger(kind: VolumeType, formula: ProvisionedFormula[Fraction], iops: Fraction) -> str:
    if (
        kind.size is None
        or formula.most_per_gib is None
        or not (formula.least or 0) <= iops <= formula.most
    ):
        return ""
    size_gib = max(math.ceil(iops / formula.most_per_gib), kind.size.least_bytes // GIB)
    return f", or --size {size_gib}GiB" if size_gib * GIB <= kind.size.most_bytes else ""


def _throughput(
    kind: VolumeType,
    request: VolumeRequest,
    size: int,
    formula: Formula | None,
    iops: Fraction | None,
) -> Fraction | None:
    if isinstance(formula, ProvisionedFormula):
        least, most = formula.bounds(FormulaInput(size, None, iops))
        unit = kind.throughput_unit_bytes
        value = request.throughput if request.throughput is not None else formula.included
        if value is None:
            message = f"{kind.name} needs its provisioned throughput, and none is given"
            raise PagecageError(message, f"--throughput {float(most / unit):g}")
        if not least <= value <= most:
            with_iops = (
                f" with {int(iops)} IOPS" if iops is not None and formula.most_per_iops else ""
            )
            allowed = (
                f"{kind.name}{with_iops} may have {float(least / unit):g} to {in_unit(most, unit)}"
            )
            hint = f"--throughput {float((least if value < least else most) / unit):g}"
            hint += _or_more_iops(kind, formula, size, value)
            raise PagecageError(f"{allowed}, not {in_unit(value, unit)}", hint)
    return (
        None if formula is None else formula.evaluate(FormulaInput(size, request.throughput, iops))
    )


def _or_more_iops(
    kind: VolumeType, formula: ProvisionedFormula[Fraction], size: int, throughput: Fraction
) -> str:
    iops_formula = kind.read_iops
    is_sold = (formula.least or 0) <= throughput <= formula.most
    if not formula.most_per_iops or not isinstance(iops_formula, ProvisionedFormula) or not is_sold:
        return ""
    iops = math.ceil(throughput / formula.most_per_iops)
    return f", or --iops {iops}" if iops <= iops_formula.bounds(FormulaInput(size))[1] else ""


def _layers(
    kind: VolumeType, base: Fraction | None, rule: BurstRule | None, size: int
) -> tuple[LimitLayer, ...]:
    """Return the layer, with its burst if that is faster than the base."""
    if base is None:
        return ()
    given = FormulaInput(size)
    rate = rule.rate.evaluate(given) if rule else None
    if rule is None or rate is None or rate <= base:
        return (LimitLayer(kind.name, base),)
    bucket = rule.credits.evaluate(given) if rule.credits else None
    if rule.seconds is not None:
        bucket = (rate - base) * rule.seconds
    return (LimitLayer(kind.name, base, rate, bucket),)
