"""Comparison of volumes and instances by what a run needs of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pagecage.cloud.catalogue import InstanceCaps, InstanceType, Provider, VolumeType
from pagecage.cloud.enough import VolumeOffer, choose
from pagecage.cloud.formulas import ProvisionedFormula, VolumeLimits
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
)
from pagecage.cloud.volume_request import VolumeRequest, parse_throughput
from pagecage.errors import PagecageError, nearest
from pagecage.units import KIB, format_hours
from pagecage.verdicts.io_demand import IoDemand

ANSWERS = ("yes", "expected", "unknown", "not expected", "no")
"""Answers to "is it under the target?".

The whole range is, or the expected time, or only the low end, or nothing. On an emulated CPU the
expected time decides nothing: an answer other than yes or no is unknown.
"""


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
    """Return the types to compare. Raises PagecageError if no provider has the instance."""
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
    """The prediction for instances of the same limits, for `types` or, if empty, for all."""

    provider: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    prediction: VolumePrediction
    answer: str | None


def compare_instances(demand: IoDemand, question: VolumeQuestion) -> list[InstanceRow]:
    """Predict a trial's time under each instance's limits alone, the slowest first."""
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
