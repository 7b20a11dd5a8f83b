"""The catalogue's files: figures are read exactly, and errors name file and key."""

from __future__ import annotations

import json
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from pagecage.cli.schema import schemas
from pagecage.cloud.catalogue import read_offers
from pagecage.cloud.formulas import LinearFormula
from pagecage.errors import PagecageError
from pagecage.units import MIB
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


MEASURED_TWICE = """
[[types.measured_latency]]
direction = "read"
size = "4096B"
percentiles_us.50 = 500
load = "two reads at a time"
by = "page"
[[types.measured_latency]]"""


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
        (
            ("per_gib = 0.75,", "per_gib = 0.75, per_tib = 1,"),
            "linear needs either per_gib or per_tib",
        ),
        (
            ("per_gib = 0.75", 'per_gib = "0.75MiB"'),
            "types.0.iops.linear.per_gib: this must be a number above zero",
        ),
        (("per_gib = 0.75", "per_gib = 0"), "this must be a number above zero"),
        (("per_gib = 0.75", "per_gib = true"), "this must be a number above zero"),
        (
            ('value = "128MiB"', "value = 128"),
            "types.0.throughput.steps.0.value: this must be a string with a unit",
        ),
        (
            ('value = "128MiB"', 'value = "128M"'),
            "types.0.throughput.steps.0.value: '128M' has no clear unit",
        ),
        (("iops.linear", "iops.lineer"), "types.0.iops.lineer"),
        (
            ("iops.linear", "iops.fixed = 1\niops.linear"),
            "types.0.iops: a formula needs exactly one of",
        ),
        (("iops.linear", "read_iops.fixed = 1\niops.linear"), "iops excludes read_iops"),
        (("tiers.P1", "iops.fixed = 1\ntiers.P1"), "types.1: tiers exclude iops"),
        (
            ('size = "8GiB", iops', 'size = "4GiB", iops'),
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
        (
            ("[[types.measured_latency]]", MEASURED_TWICE),
            "measured_latency: two distributions have the same size",
        ),
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
    assert all(
        source["url"].startswith(("https://", "http://")) for source in data["sources"].values()
    )
