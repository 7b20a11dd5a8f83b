"""A run's time on the instances of the catalogue, whatever the volume."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pagecage.cloud.catalogue import Provider, VolumeType
from pagecage.cloud.comparison import VolumeQuestion, answer, offered_types
from pagecage.cloud.instance_tables import InstanceCaps, InstanceType
from pagecage.cloud.instances import attached, machine_name
from pagecage.cloud.profile import LimitProfile
from pagecage.cloud.run_prediction import VolumeOutlook, VolumePrediction
from pagecage.cloud.volume_limits import VolumeLimits
from pagecage.verdicts.io_demand import IoDemand


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
            reached = answer(prediction, question.under_seconds)
            rows.append(InstanceRow(provider.name, tuple(names), types, prediction, reached))
    return sorted(rows, key=lambda row: -row.prediction.seconds)


def _by_limits(
    provider: Provider, kinds: Mapping[str, VolumeType]
) -> dict[tuple[InstanceCaps, tuple[str, ...]], list[str]]:
    """Return the names of the instances with the same limits on the same types."""
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
