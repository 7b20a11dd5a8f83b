"""The catalogue's formulas beside the published figures of tests/fixtures/cloud_limits.csv."""

from __future__ import annotations

import csv
import re
from fractions import Fraction

import pytest

from pagecage.cloud.catalogue import InstanceType, Provider, VolumeType, read_offers
from pagecage.cloud.formulas import (
    FormulaInput,
    LimitLayer,
    ProvisionedFormula,
    VolumeLimits,
    rate_periods,
    reachable,
)
from pagecage.cloud.profile import attached, find_instance
from pagecage.cloud.volume_request import VolumeRequest, volume_limits
from pagecage.units import GIB, MIB
from tests.tree import ROOT

PROVIDERS = {provider.name: provider for provider in read_offers(ROOT / "cgroups/catalogue")}
with (ROOT / "tests/fixtures/cloud_limits.csv").open() as file:
    ROWS = list(csv.DictReader(file))
# Rows whose name also states provisioned values: the type, and these values.
AS_BOUGHT = {
    "gp3-base": ("gp3", VolumeRequest()),
    "gp3-max-16k": ("gp3", VolumeRequest(iops=Fraction(16000), throughput=Fraction(1000 * MIB))),
    "hyperdisk-balanced-included-baseline": ("hyperdisk-balanced", VolumeRequest()),
    "hyperdisk-balanced-default": (
        "hyperdisk-balanced",
        VolumeRequest(iops=Fraction(3600), throughput=Fraction(290 * MIB)),
    ),
    "hyperdisk-throughput-180": (
        "hyperdisk-throughput",
        VolumeRequest(throughput=Fraction(180 * MIB)),
    ),
    "premium-ssd-v2-base": ("premium-ssd-v2", VolumeRequest()),
}
MACHINES = {
    "e2-medium": "e2-medium",
    "n2-2to7vcpu": "n2-standard-4",
    "n2-8to15vcpu": "n2-highmem-8",
    "n2-64vcpu": "n2-standard-64",
}


def kind_of(provider: Provider, name: str) -> VolumeType:
    return next(kind for kind in provider.types if kind.type == name)


def most_of(kind: VolumeType, size_bytes: int) -> VolumeRequest:
    """Return a request for the greatest values at this size."""
    iops = (
        kind.read_iops.bounds(FormulaInput(size_bytes))[1]
        if isinstance(kind.read_iops, ProvisionedFormula)
        else None
    )
    throughput = None
    if isinstance(kind.read_throughput, ProvisionedFormula):
        throughput = kind.read_throughput.bounds(FormulaInput(size_bytes, None, iops))[1]
    return VolumeRequest(size_bytes, iops, throughput)


def requested(provider: Provider, name: str, size_bytes: int) -> tuple[VolumeType, VolumeRequest]:
    """Return the type and the request that a row's volume_type stands for."""
    if name in AS_BOUGHT:
        kind, bought = AS_BOUGHT[name]
        return kind_of(provider, kind), VolumeRequest(size_bytes, bought.iops, bought.throughput)
    base = re.sub(r"-(max|max-80k)$", "", name)
    if tier := re.fullmatch(
        r"(premium-ssd|standard-ssd|standard-hdd)-([PES]\d+)(-on-demand-burst)?", base
    ):
        kind = kind_of(provider, f"{tier[1]}-on-demand" if tier[3] else tier[1])
        assert kind.tiers[tier[2]].size_bytes == size_bytes
        return kind, VolumeRequest(size_bytes)
    kind = kind_of(provider, base)
    return kind, most_of(
        kind, size_bytes
    ) if name != base or base == "pd-extreme" else VolumeRequest(size_bytes)


def limits_of(row: dict[str, str]) -> tuple[VolumeLimits, VolumeType | None, InstanceType | None]:
    provider, name = PROVIDERS[row["provider"]], row["volume_type"]
    if name.startswith("instance:"):
        instance = find_instance(provider, provider.types[0], name.removeprefix("instance:"))
        return attached(VolumeLimits(), instance), None, instance
    name, _, machine = name.partition("@")
    kind, order = requested(provider, name, int(float(row["size_gib"]) * GIB))
    volume = volume_limits(kind, order)
    instance = find_instance(provider, kind, MACHINES.get(machine, machine)) if machine else None
    return (attached(volume, instance) if instance else volume), kind, instance


def lasting(layers: tuple[LimitLayer, ...]) -> Fraction:
    return min(layer.base for layer in layers)


def bursting(layers: tuple[LimitLayer, ...]) -> Fraction | None:
    rate = rate_periods(layers)[0].rate
    return rate if any(layer.bursts for layer in layers) else None


def close(value: Fraction | None, expected: str, unit: int = 1) -> bool:
    """Return whether a value equals the table's two decimals, rounded from binary floats."""
    if value is None or not expected:
        return value is None and not expected
    return abs(value / unit - Fraction(expected)) <= Fraction(51, 10000)


@pytest.mark.parametrize(
    "row", ROWS, ids=[f"{r['provider']}-{r['volume_type']}-{r['size_gib']}" for r in ROWS]
)
def test_every_published_row_follows_from_the_catalogue(row: dict[str, str]) -> None:
    limits, kind, instance = limits_of(row)
    io_size = kind.accounting.io_size_bytes if kind else None
    for side, iops, bandwidth in (
        ("read", limits.read_iops, limits.read_bandwidth),
        ("write", limits.write_iops, limits.write_bandwidth),
    ):
        assert close(lasting(iops), row[f"{side}_iops"])
        # The table has the throughput without credits, so the IOPS limit it as well.
        left = reachable(lasting(bandwidth), lasting(iops), io_size)
        assert close(left, row[f"{side}_mib_s"], MIB)
    check_burst(limits, row)
    expected = row["io_accounting_kib"]
    assert io_size == (int(expected) * 1024 if expected else None)
    if kind:
        check_latency(kind, row["typical_read_latency_ms"])
    if row["volume_type"].startswith("instance:"):
        assert instance is not None
        assert instance.memory_bytes == float(row["size_gib"]) * GIB


def check_burst(limits: VolumeLimits, row: dict[str, str]) -> None:
    if not row["burst_seconds"]:
        assert bursting(limits.read_iops) is None
        assert bursting(limits.read_bandwidth) is None
        return
    assert close(rate_periods(limits.read_iops)[0].rate, row["burst_iops"])
    assert close(rate_periods(limits.read_bandwidth)[0].rate, row["burst_mib_s"], MIB)
    first = next(
        rate_periods(layers)[0]
        for layers in (limits.read_iops, limits.read_bandwidth)
        if bursting(layers)
    )
    if row["burst_seconds"] == "unlimited":
        assert first.seconds is None
    else:
        assert close(first.seconds, row["burst_seconds"])


def check_latency(kind: VolumeType, expected: str) -> None:
    if kind.latency is None:
        assert expected == ""
        return
    least, below = kind.latency.read_from_us, kind.latency.read_below_us
    assert expected == (
        f"{least // 1000}-{(below or 0) // 1000}" if least else f"<{(below or 0) // 1000}"
    )


def test_the_table_is_complete() -> None:
    assert len(ROWS) == 167
    assert {row["provider"] for row in ROWS} == set(PROVIDERS)


@pytest.mark.parametrize(
    "row", ROWS, ids=[f"{r['provider']}-{r['volume_type']}-{r['size_gib']}" for r in ROWS]
)
def test_every_row_names_the_source_that_the_catalogue_names(row: dict[str, str]) -> None:
    _, kind, instance = limits_of(row)
    offers = [offer for offer in (kind, instance) if offer]
    named = [
        source for offer in offers for source in offer.sources if source.url == row["source_url"]
    ]
    dated = row["as_of"] if row["as_of"][:1].isdigit() else None
    assert {source.date for source in named} == {dated}
