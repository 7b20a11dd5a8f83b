"""A run's time on the volumes of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pagecage.cloud.catalogue import Provider, VolumeType
from pagecage.cloud.enough import VolumeOffer, choose
from pagecage.cloud.formulas import ProvisionedFormula
from pagecage.cloud.instances import find_instance, has_instance, instance_names
from pagecage.cloud.profile import CageOptions, LimitProfile
from pagecage.cloud.run_prediction import (
    LatencyBounds,
    VolumeOutlook,
    VolumePrediction,
    latency_bounds,
)
from pagecage.cloud.volume_request import VolumeRequest, parse_throughput
from pagecage.errors import PagecageError, nearest
from pagecage.verdicts.io_demand import IoDemand

ANSWERS = ("yes", "expected", "not expected", "no")
"""Answers to "is it under the target?".

The whole range is, or the expected time, or only the low end, or nothing.
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
    """Predict a trial's time on the volumes of a question, in the order of their rates.

    With a target, the volumes that reach it come first. Raises PagecageError if no provider has the
    instance of the question.
    """
    rows, left_out = list[VolumeRow](), list[LeftOut]()
    for provider, kind in offered_types(question):
        latency = latency_bounds(
            kind, question.options.latency_us, question.greatest_us, demand.request_bytes
        )
        try:
            rows.append(_row(demand, question, _offer(provider, kind, question), latency))
        except PagecageError as error:
            left_out.append(LeftOut(kind.name, error.message, error.hint))
    return sorted(rows, key=_order), left_out


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


def answer(prediction: VolumePrediction, under_seconds: float | None) -> str | None:
    """Return the answer of ANSWERS to whether a prediction is under a target; None without one."""
    if under_seconds is None:
        return None
    ends = (prediction.high, prediction.seconds, prediction.low)
    return ANSWERS[sum(end > under_seconds for end in ends)]


def _offer(provider: Provider, kind: VolumeType, question: VolumeQuestion) -> VolumeOffer:
    """Return the offer of a type. Values that the type does not sell apart are dropped."""
    instance = find_instance(provider, kind, question.instance) if question.instance else None
    throughput = question.throughput and parse_throughput(question.throughput, kind)
    fixed = VolumeRequest(
        question.size_bytes if kind.size else None,
        question.iops if isinstance(kind.read_iops, ProvisionedFormula) else None,
        throughput or None if isinstance(kind.read_throughput, ProvisionedFormula) else None,
    )
    return VolumeOffer(provider, kind, instance, question.options, fixed, question.least_bytes)


def _row(
    demand: IoDemand, question: VolumeQuestion, offer: VolumeOffer, latency: LatencyBounds
) -> VolumeRow:
    outlook = VolumeOutlook(demand, offer.kind.accounting, latency)
    profile = offer.profile(choose(offer, outlook, question.under_seconds))
    prediction = outlook.predict(profile)
    return VolumeRow(
        offer.kind, profile, latency, prediction, answer(prediction, question.under_seconds)
    )


def _order(row: VolumeRow) -> tuple[int, Fraction, Fraction, str]:
    iops, bandwidth = row.profile.limits.read_iops, row.profile.limits.read_bandwidth
    return (
        ANSWERS.index(row.answer) if row.answer else 0,
        min(layer.base for layer in iops),
        min(layer.base for layer in bandwidth),
        row.kind.name,
    )
