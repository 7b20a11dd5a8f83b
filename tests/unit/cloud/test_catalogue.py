"""The catalogue: offers, limits as published, and latencies that users measured."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from pagecage.cli.articles import schemas
from pagecage.cloud.catalogue import (
    InstanceType,
    MeasuredLatency,
    Provider,
    VolumeType,
    read_offers,
)
from pagecage.cloud.formulas import (
    FormulaInput,
    LimitLayer,
    LinearFormula,
    ProvisionedFormula,
    VolumeLimits,
    rate_periods,
    reachable,
)
from pagecage.cloud.profile import attached, find_instance
from pagecage.cloud.volume_request import VolumeRequest, volume_limits
from pagecage.definitions.reader import Definitions
from pagecage.errors import PagecageError
from pagecage.model.volume_model import mean_us
from pagecage.units import GIB, MIB, percent_text
from tests.tree import ROOT

CATALOGUE = ROOT / "cgroups/catalogue"
PROVIDER = """
title = "A cloud"
[sources.page]
title = "a page"
url = "https://example.org"
date = "2026-01"
[[types]]
type = "disk"
about = "a disk"
sources = ["page"]
size = { least = "1GiB", most = "1TiB", step = "1GiB" }
throughput_unit = "MiB"
iops.linear = { per_gib = 0.75, least = 100, most = 500 }
throughput.steps = [{ up_to = "170GiB", value = "128MiB" }, { value = "250MiB" }]
burst.iops.fixed = 3000
burst.iops_credits.fixed = 5400000
[[types.measured_latency]]
direction = "read"
size = "4KiB"
percentiles_us = { 50 = 400, "99.9" = 5000 }
load = "one read at a time"
by = "page"
[[types]]
type = "sized"
about = "a disk in sizes"
sources = ["page"]
throughput_unit = "MB"
tiers.P1.size = "4GiB"
tiers.P1.iops = 120
tiers.P1.throughput = "25MB"
tiers.P1.burst_iops = 3500
tiers.P1.burst_throughput = "170MB"
tiers.P2 = { size = "8GiB", iops = 240, throughput = "50MB" }
tier_burst_seconds = 1800
[[instances]]
sources = ["page"]
[instances.sizes]
small = { memory = "8GiB", iops = 3600, throughput = "81.25MB" }
[[machines]]
family = "n2"
sources = ["page"]
[[machines.caps.disk]]
vcpus = 1
read_iops = 10
write_iops = 10
read_throughput = "1MiB"
write_throughput = "1MiB"
[[machines.caps.disk]]
vcpus = 8
read_iops = 20
write_iops = 20
read_throughput = "2MiB"
write_throughput = "2MiB"
"""
MEASURED = "[[types.measured_latency]]"
MEASURED_TWICE = """
[[types.measured_latency]]
direction = "read"
size = "4096B"
percentiles_us.50 = 500
load = "two reads at a time"
by = "page"
[[types.measured_latency]]"""


LINEAR, GIB75, STEP = "iops.linear", "per_gib = 0.75", "types.0.throughput.steps.0"
A_NUMBER = "this must be a number above zero"


def read(folder: Path, text: str = PROVIDER) -> None:
    (folder / "cloud.toml").write_text(text)
    read_offers(folder)


def test_figures_are_exact(tmp_path: Path) -> None:
    read(tmp_path)
    disk = read_offers(tmp_path)[0].types[0]
    assert isinstance(disk.read_iops, LinearFormula)
    assert (disk.read_iops.per_gib, disk.read_iops.base) == (Fraction(3, 4), None)
    assert (disk.read_iops.least, disk.read_iops.most) == (100, 500)
    assert disk.throughput_unit_bytes == MIB
    assert disk.read_iops is disk.write_iops


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("per_gib = 0.75,", ""), "types.0.iops.linear: linear needs either per_gib or per_tib"),
        ((GIB75, f"{GIB75}, per_tib = 1"), "linear needs either per_gib or per_tib"),
        ((GIB75, 'per_gib = "0.75MiB"'), f"types.0.iops.linear.per_gib: {A_NUMBER}"),
        ((GIB75, "per_gib = 0"), A_NUMBER),
        ((GIB75, "per_gib = true"), A_NUMBER),
        (('"128MiB"', "128"), f"{STEP}.value: this must be a string with a unit"),
        (('"128MiB"', '"128M"'), f"{STEP}.value: '128M' has no clear unit"),
        ((LINEAR, "iops.lineer"), "types.0.iops.lineer"),
        ((LINEAR, f"iops.fixed = 1\n{LINEAR}"), "types.0.iops: a formula needs exactly one of"),
        ((LINEAR, f"read_iops.fixed = 1\n{LINEAR}"), "iops excludes read_iops"),
        (("tiers.P1", "iops.fixed = 1\ntiers.P1"), "types.1: tiers exclude iops"),
        (
            ('"8GiB", iops', '"4GiB", iops'),
            "types.1: tiers must go from the smallest to the largest",
        ),
        (('sources = ["page"]', 'sources = ["pgae"]'), "sources.pgae is missing"),
        (('sources = ["page"]', "sources = []"), "types.0.sources"),
        (('type = "sized"', 'type = "disk"'), "types: two have the same name"),
        (("caps.disk", "caps.dsik"), "there is no type 'dsik'"),
        (
            ("vcpus = 8", "vcpus = 1"),
            "machines.0: caps.disk must go from the fewest vCPUs to the most",
        ),
        (('step = "1GiB"', 'stepp = "1GiB"'), "types.0.size.step"),
        (('unit = "MB"', 'unit = "Mbit"'), "types.1.throughput_unit"),
        (("[[machines]]", "[[machines]"), "(at line"),
        (('by = "page"', 'by = "pgae"'), "sources.pgae is missing"),
        (("50 = 400", "50 = 6000"), "measured_latency.0: percentiles_us: percentile 99.9 (5000"),
        (("50 = 400", "500 = 400"), '"500" is not a percentage from 0 to 100'),
        (("50 = 400", "50 = 0"), "percentiles_us.50: Input should be greater than 0"),
        (('size = "4KiB"', ""), "a distribution needs size"),
        (('direction = "read"', 'direction = "both"'), "'read' or 'write'"),
        (('direction = "read"', 'direction = "read"\nuse = "cap"'), "'at_cap' or 'context'"),
        ((MEASURED, MEASURED_TWICE), "measured_latency: two distributions have the same size"),
    ],
)
def test_an_error_names_its_key(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    broken = PROVIDER.replace(*change, 1)
    assert broken != PROVIDER
    with pytest.raises(PagecageError) as caught:
        read(tmp_path, broken)
    assert caught.value.message.startswith("cloud.toml: ")
    assert message in caught.value.message
    assert caught.value.hint.startswith("edit ")


@pytest.mark.parametrize("path", sorted(CATALOGUE.glob("*.toml")), ids=lambda path: path.stem)
def test_the_schema_that_editors_use_takes_the_catalogue(path: Path) -> None:
    schema = schemas()["catalogue.schema.json"]
    Draft202012Validator.check_schema(schema)
    data = json.loads(json.dumps(tomllib.loads(path.read_text())))
    assert [error.json_path for error in Draft202012Validator(schema).iter_errors(data)] == []
    first = path.read_text().splitlines()[0].removeprefix("#:schema ")
    assert (path.parent / first).resolve() == ROOT / "docs/schema/catalogue.schema.json"


@pytest.mark.parametrize("path", sorted(CATALOGUE.glob("*.toml")), ids=lambda path: path.stem)
def test_every_source_is_used_and_has_an_address(path: Path) -> None:
    data = tomllib.loads(path.read_text())
    used = {
        name
        for part in ("types", "instances", "machines")
        for table in data.get(part, [])
        for name in (
            *table["sources"],
            *(measured["by"] for measured in table.get("measured_latency", [])),
        )
    }
    assert used == set(data["sources"])
    addresses = [source["url"] for source in data["sources"].values()]
    assert all(address.startswith(("https://", "http://")) for address in addresses)


PROVIDERS = {provider.name: provider for provider in read_offers(ROOT / "cgroups/catalogue")}
with (ROOT / "tests/fixtures/cloud_limits.csv").open() as file:
    ROWS = list(csv.DictReader(file))


def bought(iops: int | None, mib_s: int) -> VolumeRequest:
    rate = None if iops is None else Fraction(iops)
    return VolumeRequest(None, rate, Fraction(mib_s * MIB))


# Rows whose name also states provisioned values: the type, and these values.
AS_BOUGHT = {
    "gp3-base": ("gp3", VolumeRequest()),
    "gp3-max-16k": ("gp3", bought(16000, 1000)),
    "hyperdisk-balanced-included-baseline": ("hyperdisk-balanced", VolumeRequest()),
    "hyperdisk-balanced-default": ("hyperdisk-balanced", bought(3600, 290)),
    "hyperdisk-throughput-180": ("hyperdisk-throughput", bought(None, 180)),
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
        sold, extra = AS_BOUGHT[name]
        return kind_of(provider, sold), VolumeRequest(size_bytes, extra.iops, extra.throughput)
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
    if not machine:
        return volume, kind, None
    instance = find_instance(provider, kind, MACHINES.get(machine, machine))
    return attached(volume, instance), kind, instance


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
    below_ms = (below or 0) // 1000
    assert expected == (f"{least // 1000}-{below_ms}" if least else f"<{below_ms}")


def test_the_table_is_complete() -> None:
    assert len(ROWS) == 167
    assert {row["provider"] for row in ROWS} == set(PROVIDERS)


@pytest.mark.parametrize(
    "row", ROWS, ids=[f"{r['provider']}-{r['volume_type']}-{r['size_gib']}" for r in ROWS]
)
def test_every_row_names_the_source_that_the_catalogue_names(row: dict[str, str]) -> None:
    _, kind, instance = limits_of(row)
    offers = [offer for offer in (kind, instance) if offer]
    sources = [source for offer in offers for source in offer.sources]
    dated = row["as_of"] if row["as_of"][:1].isdigit() else None
    assert {source.date for source in sources if source.url == row["source_url"]} == {dated}


KINDS = {kind.name: kind for provider in PROVIDERS.values() for kind in provider.types}
with (ROOT / "tests/fixtures/volume_latency.csv").open() as file:
    MEASURED_ROWS = list(csv.DictReader(file))
IN_CATALOGUE = [row for row in MEASURED_ROWS if row["use"] in ("distribution", "at_cap", "context")]
NOT_A_DISTRIBUTION = [row for row in MEASURED_ROWS if row["use"] == "published"]
ELSEWHERE = [row for row in MEASURED_ROWS if row["use"] == "none"]
# A provider's statement that the page of the type repeats.
REPEATED = {"io2-block-express": "below 500 us on average for 16 KiB", "hyperdisk-balanced": "2 ms"}


def name_of(row: dict[str, str]) -> str:
    return f"{row['provider']} {row['load']} {row['measure']}"


def kind_of_row(row: dict[str, str]) -> VolumeType:
    return KINDS[f"{row['provider']}-{row['type']}"]


def percentiles_of(row: dict[str, str]) -> dict[str, float]:
    """Return the figures of a row by percentage, without those that the catalogue leaves out."""
    found = {
        re.sub(r"^p|_us$", "", column).replace("_", "."): value
        for column, value in row.items()
        if re.fullmatch(r"p[0-9_]+_us", column) and value
    }
    found |= {"100": row["max_us"]} if row["max_us"] else {}
    found |= dict(pair.split("=") for pair in row["further"].split())
    left_out = row["left_out"].split()
    return {name: float(value) for name, value in found.items() if name not in left_out}


def entries(kind: VolumeType, row: dict[str, str]) -> list[MeasuredLatency]:
    return [
        one for one in kind.measured if (one.load, one.direction) == (row["load"], row["measure"])
    ]


@pytest.mark.parametrize("row", IN_CATALOGUE, ids=name_of)
def test_the_catalogue_has_every_measured_figure(row: dict[str, str]) -> None:
    [entry] = entries(kind_of_row(row), row)
    assert entry.use == row["use"]
    assert {percent_text(p): us for p, us in entry.quantiles} == percentiles_of(row)


def test_every_latency_of_the_catalogue_is_in_the_table() -> None:
    assert len(MEASURED_ROWS) == 27
    in_table = {(kind_of_row(row).name, row["load"], row["measure"]) for row in IN_CATALOGUE}
    assert in_table == {
        (kind.name, one.load, one.direction) for kind in KINDS.values() for one in kind.measured
    }


@pytest.mark.parametrize("row", NOT_A_DISTRIBUTION, ids=name_of)
def test_a_providers_average_is_text_and_no_distribution(row: dict[str, str]) -> None:
    kind = kind_of_row(row)
    says = kind.latency.says if kind.latency else ""
    assert REPEATED[row["type"]] in f"{says} {' '.join(kind.remark.split())}"
    assert not kind.measured


def test_rows_of_no_type_are_not_in_the_catalogue() -> None:
    """Local disks of servers, the rate of a restore, the customer, and another throttle."""
    assert {row["provider"] for row in ELSEWHERE} == {"hetzner", "ovh", "upcloud", "aws", "none"}
    assert {row["volume"] for row in ELSEWHERE if row["provider"] == "aws"} == {
        "snapshot hydration",
        "article's customer (seed 003)",
    }


@pytest.mark.parametrize("row", [row for row in IN_CATALOGUE if row["mean_us"]], ids=name_of)
def test_the_mean_of_a_distribution_is_that_of_its_source(row: dict[str, str]) -> None:
    """The mean that fio printed is a check of the percentiles, and of those that are missing."""
    [entry] = entries(kind_of_row(row), row)
    assert mean_us(entry.quantiles) == pytest.approx(float(row["mean_us"]), rel=0.1)


def test_the_customers_volume_takes_the_latency_that_its_figures_imply() -> None:
    [row] = [row for row in ELSEWHERE if row["volume"].startswith("article's customer")]
    cage = Definitions(ROOT, []).cage("customer-volume", None)
    assert cage.simulation is not None
    [latency] = cage.simulation.read_latency
    assert (latency.size_bytes, latency.quantiles) == (131_072, ((0.5, float(row["p50_us"])),))
    minutes = 28e9 / latency.size_bytes * mean_us(latency.quantiles) / 60e6
    assert minutes == pytest.approx(15, rel=0.05)
