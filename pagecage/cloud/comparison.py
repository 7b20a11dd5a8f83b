"""Comparison of volumes and instances, the smallest that is enough, and its least time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from pagecage.cloud.catalogue import InstanceCaps, InstanceType, Provider, VolumeType
from pagecage.cloud.formulas import (
    Formula,
    FormulaInput,
    ProvisionedFormula,
    RatePeriod,
    VolumeLimits,
    rate_periods,
)
from pagecage.cloud.prediction import (
    COVERED,
    LatencyBounds,
    VolumeOutlook,
    VolumePrediction,
    latency_bounds,
)
from pagecage.cloud.profile import (
    CageOptions,
    LimitProfile,
    attached,
    find_instance,
    has_instance,
    instance_names,
    machine_name,
    profile_of,
)
from pagecage.cloud.volume_request import VolumeRequest, parse_throughput
from pagecage.errors import PagecageError, nearest
from pagecage.model.volume_model import mean_us_at_size
from pagecage.units import BLOCK_BYTES, KIB, format_bytes, format_hours
from pagecage.verdicts.io_demand import IoDemand

_BOTH = "reads and writes"


@dataclass(frozen=True)
class IoAmount:
    """The I/O of a program: bytes, and the number of requests that move them.

    `depth` is the number of requests in flight; None if unknown.
    """

    read_bytes: int = 0
    reads: int = 0
    written_bytes: int = 0
    writes: int = 0
    depth: int | None = None

    @property
    def by_direction(self) -> tuple[tuple[str, int, int], ...]:
        """Name, requests and bytes of each direction."""
        return ("read", self.reads, self.read_bytes), ("write", self.writes, self.written_bytes)


@dataclass(frozen=True)
class LimitFloor:
    """The least time that one limit allows.

    `limit` is the quantity that it limits, `by` the layer that sets it. `amount` is in bytes or
    operations, as the provider counts them.
    """

    limit: str
    by: str
    amount: int
    seconds: float


def time_floors(profile: LimitProfile, io: IoAmount) -> list[LimitFloor]:
    """Return the least time by each limit of each layer, the longest first.

    The first of them is the least time of the whole, because all limits hold at the same time.
    Limits that the amount does not touch are left out.
    """
    found = [*_rate_floors(profile, io), *_latency_floors(profile, io)]
    return sorted(found, key=lambda floor: floor.seconds, reverse=True)


def seconds_for(amount: int, periods: Sequence[RatePeriod]) -> float:
    """Return the time that an amount takes at these rates; 0 without a rate."""
    left, seconds = Fraction(amount), Fraction(0)
    for period in periods:
        needed = left / period.rate
        if period.seconds is None or needed <= period.seconds:
            return float(seconds + needed)
        left -= period.rate * period.seconds
        seconds += period.seconds
    return float(seconds)


def _rate_floors(profile: LimitProfile, io: IoAmount) -> Iterator[LimitFloor]:
    limits, is_combined = profile.limits, bool(profile.accounting and profile.accounting.combined)
    reads = _operations(profile, io.reads, io.read_bytes)
    writes = _operations(profile, io.writes, io.written_bytes)
    if is_combined:
        groups = [
            (f"IOPS, {_BOTH}", limits.read_iops, reads + writes),
            (f"bandwidth, {_BOTH}", limits.read_bandwidth, io.read_bytes + io.written_bytes),
        ]
    else:
        groups = [
            ("read IOPS", limits.read_iops, reads),
            ("write IOPS", limits.write_iops, writes),
            ("read bandwidth", limits.read_bandwidth, io.read_bytes),
            ("write bandwidth", limits.write_bandwidth, io.written_bytes),
        ]
    for name, layers, amount in groups:
        for layer in layers if amount else ():
            seconds = seconds_for(amount, rate_periods((layer,), profile.start))
            yield LimitFloor(name, layer.by, amount, seconds)


def _operations(profile: LimitProfile, requests: int, size_bytes: int) -> int:
    """Return the fewest operations that the provider may count; after merging, bytes decide."""
    accounting = profile.accounting
    if accounting is None or not accounting.io_size_bytes:
        return requests
    by_size = math.ceil(size_bytes / accounting.io_size_bytes)
    return by_size if accounting.merged and size_bytes else max(requests, by_size)


def counting_notes(profile: LimitProfile, io: IoAmount) -> Iterator[str]:
    """Yield a sentence for each direction whose operations differ from the requests."""
    accounting = profile.accounting
    for side, requests, size_bytes in io.by_direction:
        name, operations = f"{side}s", _operations(profile, requests, size_bytes)
        if accounting is None or accounting.io_size_bytes is None or operations == requests:
            continue
        unit = format_bytes(accounting.io_size_bytes)
        amount = f"{requests:,} {name}" if requests else f"{format_bytes(size_bytes)} of {name}"
        how = f"counts one operation for each {unit} of a request"
        if operations < requests:
            how = f"may merge neighbouring requests to {unit}, so only the bytes count"
        yield f"{amount} are at least {operations:,} operations: the provider {how}."


def _latency_floors(profile: LimitProfile, io: IoAmount) -> Iterator[LimitFloor]:
    """Yield the time of requests one after the other, by their least or their mean latency."""
    simulation = profile.simulation if profile.is_volume else None
    for direction, requests, size_bytes in io.by_direction:
        kind, latency_us = f"{direction} latency", getattr(profile.latency, f"{direction}_us", 0)
        if sizes := getattr(simulation, f"{direction}_latency", ()):
            kind = f"mean {kind}"
            latency_us = mean_us_at_size(sizes, size_bytes / max(requests, 1) or BLOCK_BYTES)
        if requests and latency_us and io.depth:
            seconds = requests * latency_us / 1e6 / io.depth
            yield LimitFloor(f"{kind}, {io.depth} in flight", profile.name, requests, seconds)


IOPS_STEP = 100
"""Step of provisioned IOPS. A prediction is not exact enough for a finer one."""
AS_FAST = 1.01
"""A volume is as fast as the fastest if it takes at most so many times its time."""


@dataclass(frozen=True)
class VolumeOffer:
    """The volumes of one type, on one instance or without one.

    `fixed` has the values that the customer has chosen; the others are free. A free size is at
    least `least_bytes`.
    """

    provider: Provider
    kind: VolumeType
    instance: InstanceType | None
    options: CageOptions
    fixed: VolumeRequest
    least_bytes: int

    def profile(self, request: VolumeRequest) -> LimitProfile:
        return profile_of(self.provider, self.kind, request, self.instance, self.options)

    @property
    def includes_rates(self) -> bool:
        """True if the price of the size includes every rate that is not fixed."""
        rates = (
            (self.fixed.iops, self.kind.read_iops),
            (self.fixed.throughput, self.kind.read_throughput),
        )
        return all(
            fixed is not None or not isinstance(formula, ProvisionedFormula) or formula.included
            for fixed, formula in rates
        )

    def plain(self) -> VolumeRequest:
        """Return the smallest volume with its included rates."""
        sizes = self._sizes()
        number = _least_number(len(sizes), lambda n: self._is_sold(self._sized(sizes[n])))
        return self._sized(sizes[number])

    def fastest(self, seconds: Callable[[LimitProfile], float]) -> VolumeRequest:
        """Return the fastest volume: the largest, or of tiers, which may lose a burst, the best.

        Raises PagecageError if none is sold.
        """
        sizes = self._sizes()
        requests = [self._fastest_of(size) for size in (sizes if self.kind.tiers else sizes[-1:])]
        return min(requests, key=lambda request: seconds(self.profile(request)))

    def smallest(self, is_enough: Callable[[LimitProfile], bool]) -> VolumeRequest:
        """Return the smallest that is enough by size, IOPS, throughput; the fastest must be."""

        def suits(request: VolumeRequest) -> bool:
            return self._is_sold(request) and is_enough(self.profile(request))

        sizes = self._sizes()
        number = (
            next(n for n, size in enumerate(sizes) if suits(self._fastest_of(size)))
            if self.kind.tiers
            else _least_number(len(sizes), lambda n: suits(self._fastest_of(sizes[n])))
        )
        fastest = self._fastest_of(sizes[number])
        given = FormulaInput(fastest.size_bytes or 0)
        steps = _steps(self.kind.read_iops, self.fixed.iops, given, fastest.iops, IOPS_STEP)
        choices = [self._with_throughput(self._sized(fastest.size_bytes, iops)) for iops in steps]
        request = choices[_least_number(len(choices), lambda n: suits(choices[n]))]
        given = FormulaInput(request.size_bytes or 0, None, request.iops)
        narrower = [
            replace(request, throughput=rate)
            for rate in _steps(
                *(self.kind.read_throughput, self.fixed.throughput, given, request.throughput),
                self.kind.throughput_unit_bytes,
            )
        ]
        return narrower[_least_number(len(narrower), lambda n: suits(narrower[n]))]

    def _sizes(self) -> Sequence[int | None]:
        """Return the sizes to choose from, ascending; None where the limits do not depend on it."""
        bounds = self.kind.size
        if self.fixed.size_bytes is not None or bounds is None:
            return (self.fixed.size_bytes,)
        least = max(bounds.least_bytes, min(self.least_bytes, bounds.most_bytes))
        tiers = [tier.size_bytes for tier in self.kind.tiers.values() if tier.size_bytes >= least]
        step = bounds.step_bytes
        return tiers or range(-(-least // step) * step, bounds.most_bytes + 1, step)

    def _is_sold(self, request: VolumeRequest) -> bool:
        try:
            self.profile(request)
        except PagecageError:
            return False
        return True

    def _sized(self, size: int | None, iops: Fraction | None = None) -> VolumeRequest:
        return replace(self.fixed, size_bytes=size, iops=iops or self.fixed.iops)

    def _fastest_of(self, size: int | None) -> VolumeRequest:
        most = _most(self.kind.read_iops, FormulaInput(size or 0), 1)
        return self._with_throughput(self._sized(size, self.fixed.iops or most))

    def _with_throughput(self, request: VolumeRequest) -> VolumeRequest:
        given = FormulaInput(request.size_bytes or 0, None, request.iops)
        most = _most(self.kind.read_throughput, given, self.kind.throughput_unit_bytes)
        return replace(request, throughput=self.fixed.throughput or most)


def _most(formula: Formula | None, given: FormulaInput, unit: int) -> Fraction | None:
    """Return the greatest provisioned value in whole units; None for a formula without one."""
    if not isinstance(formula, ProvisionedFormula):
        return None
    return Fraction(formula.bounds(given)[1] // unit * unit)


def _steps(
    formula: Formula | None,
    fixed: Fraction | None,
    given: FormulaInput,
    most: Fraction | None,
    step: int,
) -> list[Fraction | None]:
    """Return the values up to `most` that can be bought; `most` alone if the customer has none."""
    if fixed is not None or not isinstance(formula, ProvisionedFormula):
        return [most]
    least, top = Fraction(math.ceil(formula.bounds(given)[0])), most or Fraction(0)
    between = range(int(least) // step * step + step, math.ceil(top), step)
    return [*({least} if least < top else ()), *map(Fraction, between), top]


def _least_number(count: int, is_enough: Callable[[int], bool]) -> int:
    """Return the least number below `count` that is enough; the last one must be."""
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low


def choose(
    offer: VolumeOffer, outlook: VolumeOutlook, under_seconds: float | None
) -> VolumeRequest:
    """Return the smallest volume that brings the run under a time.

    The upper end of the range counts. Where that is out of reach, the expected time counts, and
    where that is out of reach too, the volume is as fast as the fastest. Without a time it is the
    smallest volume with its included rates; of a type that includes none, it is as fast as the
    fastest. The volume may not be sold if the fixed values exclude each other.
    """
    if under_seconds is None and offer.includes_rates:
        return offer.plain()
    fastest = offer.profile(offer.fastest(outlook.seconds))
    least = outlook.seconds(fastest)
    if under_seconds is not None and outlook.high(fastest) <= under_seconds:
        return offer.smallest(lambda profile: outlook.high(profile) <= under_seconds)
    target = under_seconds if under_seconds and least <= under_seconds else AS_FAST * least
    return offer.smallest(lambda profile: outlook.seconds(profile) <= target)


ANSWERS = ("yes", "expected", "unknown", "not expected", "no")
"""Answers to "is it under the target?": the whole range is, the expected time, (unknown: some of it
on an emulated CPU, where that decides nothing), only the low end, or nothing."""


@dataclass(frozen=True)
class VolumeQuestion:
    """The volumes to compare, and the target.

    None means free. A free size is at least `least_bytes`. `throughput` is as `parse_throughput`
    reads it. `greatest_us` is the latency of a volume about which nothing is published.
    """

    providers: tuple[Provider, ...]
    options: CageOptions
    greatest_us: int
    type_text: str = ""
    instance: str | None = None
    size_bytes: int | None = None
    iops: Fraction | None = None
    throughput: str | None = None
    least_bytes: int = 0
    under_seconds: float | None = None


@dataclass(frozen=True)
class VolumeRow:
    """The prediction for one volume. `answer` is one of ANSWERS; None without a target."""

    kind: VolumeType
    profile: LimitProfile
    latency: LatencyBounds
    prediction: VolumePrediction
    answer: str | None


@dataclass(frozen=True)
class LeftOut:
    """A volume type that cannot be compared, the reason, and the option that would change it."""

    name: str
    reason: str
    hint: str


def compare_volumes(
    demand: IoDemand, question: VolumeQuestion
) -> tuple[list[VolumeRow], list[LeftOut]]:
    """Predict a trial's time on the volumes of a question, those that reach its target first.

    Others follow in the order of their rates. Raises PagecageError if no provider has the instance.
    """
    rows, left_out = list[VolumeRow](), list[LeftOut]()
    for provider, kind in offered_types(question):
        latency = latency_bounds(
            kind, question.options.latency_us, question.greatest_us, demand.request_bytes
        )
        try:
            offer = _offer(provider, kind, question)
            outlook = VolumeOutlook(demand, kind.accounting, latency)
            profile = offer.profile(choose(offer, outlook, question.under_seconds))
            prediction = outlook.predict(profile)
        except PagecageError as error:
            left_out.append(LeftOut(kind.name, error.message, error.hint))
            continue
        reached = answer(prediction, question.under_seconds, is_emulated=demand.is_emulated)
        rows.append(VolumeRow(kind, profile, latency, prediction, reached))

    def order(row: VolumeRow) -> tuple[int, Fraction, Fraction, str]:
        iops, bandwidth = row.profile.limits.read_iops, row.profile.limits.read_bandwidth
        return (
            ANSWERS.index(row.answer) if row.answer else 0,
            min(layer.base for layer in iops),
            min(layer.base for layer in bandwidth),
            row.kind.name,
        )

    return sorted(rows, key=order), left_out


def _offer(provider: Provider, kind: VolumeType, question: VolumeQuestion) -> VolumeOffer:
    instance = find_instance(provider, kind, question.instance) if question.instance else None
    throughput = question.throughput and parse_throughput(question.throughput, kind)
    fixed = VolumeRequest(  # without values that the type does not sell apart
        question.size_bytes if kind.size else None,
        question.iops if isinstance(kind.read_iops, ProvisionedFormula) else None,
        throughput or None if isinstance(kind.read_throughput, ProvisionedFormula) else None,
    )
    return VolumeOffer(provider, kind, instance, question.options, fixed, question.least_bytes)


def offered_types(question: VolumeQuestion) -> list[tuple[Provider, VolumeType]]:
    """Return the types of the question's providers, or of those that have its instance.

    Raises PagecageError if none has it, or if no type matches.
    """
    name, providers = question.instance, question.providers
    if name is not None:
        providers = tuple(one for one in providers if has_instance(one, name))
    if not providers:
        known = [known for one in question.providers for known in instance_names(one)]
        hint = nearest(name or "", known)
        hint = hint if hint.startswith("did") else "pagecage cage list"
        raise PagecageError(f"no provider has an instance {name!r} in the catalogue", hint)
    found = [
        (one, kind)
        for one in providers
        for kind in one.types
        if question.type_text.lower() in kind.name
    ]
    if not found:
        raise PagecageError(f"no volume type contains {question.type_text!r}", "pagecage cage list")
    return found


def answer(
    prediction: VolumePrediction, under_seconds: float | None, *, is_emulated: bool = False
) -> str | None:
    """Return the answer of ANSWERS to whether a prediction is under a target; None without one."""
    if under_seconds is None:
        return None
    if prediction.high <= under_seconds:
        return "yes"
    if prediction.low > under_seconds:
        return "no"
    if is_emulated:
        return "unknown"
    return "expected" if prediction.seconds <= under_seconds else "not expected"


@dataclass(frozen=True)
class InstanceRow:
    """The prediction for instances with the same limits.

    `types` are the volume types to which the limits apply; empty for all of the provider.
    """

    provider: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    prediction: VolumePrediction
    answer: str | None


def compare_instances(demand: IoDemand, question: VolumeQuestion) -> list[InstanceRow]:
    """Predict a trial's time under the limits of each instance alone, the slowest first.

    Volume and instance limit at the same time, so a volume on an instance takes at least the longer
    of the two times.
    """
    offered = offered_types(question)
    rows = []
    for provider in {provider.name: provider for provider, _ in offered}.values():
        kinds = {kind.type: kind for one, kind in offered if one is provider}
        for (caps, types), names in _by_limits(provider, kinds).items():
            accounting = kinds[types[0] if types else next(iter(kinds))].accounting
            outlook = VolumeOutlook(demand, accounting, None)
            limits = attached(VolumeLimits(), InstanceType(names[0], None, caps, (), ""))
            scaled = limits.scaled(question.options.scale)
            prediction = outlook.predict(LimitProfile(names[0], "", scaled, question.options.start))
            reached = answer(prediction, question.under_seconds, is_emulated=demand.is_emulated)
            rows.append(InstanceRow(provider.name, tuple(names), types, prediction, reached))
    return sorted(rows, key=lambda row: -row.prediction.seconds)


def _by_limits(
    provider: Provider, kinds: Mapping[str, VolumeType]
) -> dict[tuple[InstanceCaps, tuple[str, ...]], list[str]]:
    found: dict[tuple[InstanceCaps, tuple[str, ...]], list[str]] = {}
    for instance in provider.instances:
        found.setdefault((instance.caps, ()), []).append(instance.name)
    for family in provider.machines:
        types: dict[tuple[int, InstanceCaps], list[str]] = {}
        for kind, rows in family.caps.items():
            for row in rows if kind in kinds else ():
                types.setdefault((row.least_vcpus, row.caps), []).append(kind)
        for (vcpus, caps), names in sorted(types.items(), key=lambda one: one[0][0]):
            machine = machine_name(family, vcpus)
            found.setdefault((caps, tuple(names)), []).append(machine)
    return found


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
    if all(demand.latency_seconds is None for demand in demands):
        yield "The run does not show how long a request took, so latency is that of its disk."
        return
    groups: dict[tuple[float, float, str], list[str]] = {}
    for row in rows:
        origin = "where the provider states nothing" if row.kind.latency is None else "as stated"
        if row.latency.measured[0] is not None:
            origin = "as users measured"
        bounds = (row.latency.least[0], row.latency.greatest[0], origin)
        groups.setdefault(bounds, []).append(row.kind.name)
    if all(least == greatest for least, greatest, _ in groups):
        yield f"A request takes {next(iter(groups))[0] * 1e6:.0f} us, as --latency says."
        return
    parts = [
        f"{least * 1e3:.2g} to {greatest * 1e3:.2g} ms {origin} ({', '.join(names)})"
        for (least, greatest, origin), names in sorted(groups.items())
    ]
    yield f"A read takes {'; '.join(parts)}."
    yield (
        "The expected time takes the measured mean, or else the latency of the run as far as it is"
        " within these bounds. --latency replaces them."
    )


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
