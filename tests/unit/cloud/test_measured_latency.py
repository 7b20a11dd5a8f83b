"""Latencies of the catalogue beside the measured figures of tests/fixtures/volume_latency.csv."""

from __future__ import annotations

import csv
import re

import pytest

from pagecage.cloud.catalogue import MeasuredLatency, VolumeType, read_offers
from pagecage.definitions.reader import Definitions
from pagecage.model.volume_model import mean_us
from pagecage.units import percent_text
from tests.tree import ROOT

KINDS = {
    kind.name: kind
    for provider in read_offers(ROOT / "cgroups/catalogue")
    for kind in provider.types
}
with (ROOT / "tests/fixtures/volume_latency.csv").open() as file:
    ROWS = list(csv.DictReader(file))
IN_CATALOGUE = [row for row in ROWS if row["use"] in ("distribution", "at_cap", "context")]
NOT_A_DISTRIBUTION = [row for row in ROWS if row["use"] == "published"]
ELSEWHERE = [row for row in ROWS if row["use"] == "none"]
# A provider's statement that the page of the type repeats.
REPEATED = {"io2-block-express": "below 500 us on average for 16 KiB", "hyperdisk-balanced": "2 ms"}


def name_of(row: dict[str, str]) -> str:
    return f"{row['provider']} {row['load']} {row['measure']}"


def kind_of(row: dict[str, str]) -> VolumeType:
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
    [entry] = entries(kind_of(row), row)
    assert entry.use == row["use"]
    assert {percent_text(p): us for p, us in entry.quantiles} == percentiles_of(row)


def test_every_latency_of_the_catalogue_is_in_the_table() -> None:
    assert len(ROWS) == 27
    in_table = {
        (f"{row['provider']}-{row['type']}", row["load"], row["measure"]) for row in IN_CATALOGUE
    }
    assert in_table == {
        (kind.name, one.load, one.direction) for kind in KINDS.values() for one in kind.measured
    }


@pytest.mark.parametrize("row", NOT_A_DISTRIBUTION, ids=name_of)
def test_a_providers_average_is_text_and_no_distribution(row: dict[str, str]) -> None:
    kind = kind_of(row)
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
    [entry] = entries(kind_of(row), row)
    assert mean_us(entry.quantiles) == pytest.approx(float(row["mean_us"]), rel=0.1)


def test_the_customers_volume_takes_the_latency_that_its_figures_imply() -> None:
    [row] = [row for row in ELSEWHERE if row["volume"].startswith("article's customer")]
    cage = Definitions(ROOT, []).cage("customer-volume", None)
    assert cage.simulation is not None
    [latency] = cage.simulation.read_latency
    assert (latency.size_bytes, latency.quantiles) == (131_072, ((0.5, float(row["p50_us"])),))
    minutes = 28e9 / latency.size_bytes * mean_us(latency.quantiles) / 60e6
    assert minutes == pytest.approx(15, rel=0.05)
