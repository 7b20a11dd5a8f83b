"""`pagecage cage` as a user meets it: what it prints and saves, and what it says to bad input."""

from __future__ import annotations

import json
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

from pagecage.definitions.reader import Definitions
from pagecage.model.json_codec import Json
from tests.checkout import PLAIN, pagecage, refused
from tests.tree import ROOT

GP3 = (
    *("aws-gp3", "--size", "500GiB", "--iops", "6000", "--throughput", "250"),
    *("--instance", "m7i.large"),
)


def show(top: Path, *words: str) -> str:
    done = pagecage(top, "cage", "show", *words)
    assert done.status == 0, done.stderr
    return done.stdout


def shown_json(top: Path, *words: str) -> Json:
    loaded: Json = json.loads(show(top, *words, "--json"))
    return loaded


def row(page: str, name: str) -> list[str]:
    """The cells of a row of the page's table."""
    line = next(line for line in page.splitlines() if line.startswith(name))
    return [cell.strip() for cell in line.split("   ") if cell.strip()]


def test_a_page_says_how_fast_for_how_long_and_by_whom(top: Path) -> None:
    page = show(top, *GP3)
    assert page.splitlines()[0] == "aws-gp3  500 GiB, 6000 IOPS, 250 MiB/s, on m7i.large"
    lasting = "from full, credits of m7i.large"
    assert row(page, "IOPS") == ["IOPS", "6000", "aws-gp3", f"7 h 35 min {lasting}"]
    rate = "262.1 MB/s (250 MiB/s)"
    assert row(page, "bandwidth") == ["bandwidth", rate, "aws-gp3", f"3 h 14 min {lasting}"]
    rate = "81.25 MB/s (77.49 MiB/s)"
    assert row(page, "            81.25") == [rate, "m7i.large", "indefinitely"]
    assert row(page, "memory") == ["memory", "8 GiB", "m7i.large"]
    assert "Reads and writes share each limit" in page
    assert "2025-09  https://" in page
    assert all(line == line.rstrip() for line in page.splitlines())


def test_what_is_saved_is_a_cage_that_a_plan_takes(top: Path) -> None:
    done = pagecage(top, "cage", "show", *GP3, "--save", "customer-disk", "--start", "half")
    assert done.status == 0
    assert "saved: cgroups/customer-disk.toml" in done.stderr
    cage = Definitions(top, []).cage("customer-disk", None)
    assert cage.properties["IOReadBandwidthMax"] == 81_250_000
    assert cage.burst is not None
    assert cage.burst.start == "half"
    assert cage.volume is not None
    volume = (cage.volume.size_bytes, cage.volume.iops, cage.volume.instance)
    assert volume == (500 * 2**30, 6000, "m7i.large")
    text = (top / "cgroups/customer-disk.toml").read_text()
    assert tomllib.loads(text)["volume"]["throughput"] == "250MiB"
    words = ("run", "smoke", "--dry-run", *PLAIN, "--cage", "customer-disk", "--json")
    cages = [trial["cage"] for trial in json.loads(pagecage(top, *words).stdout)["trials"]]
    planned = next(cage for cage in cages if cage["name"] == "customer-disk")
    assert planned["burst"]["iops"] == {"rate": 6000, "credits": 65_520_000}
    accounting = {"io_size_bytes": 262144, "merged": True, "combined": True}
    assert planned["accounting"] == accounting


def test_a_volume_becomes_a_further_disk_of_a_saved_cage(top: Path) -> None:
    pagecage(top, "cage", "show", *GP3, "--save", "customer-disk")
    before = (top / "cgroups/customer-disk.toml").read_text()
    gp2 = ("aws-gp2", "--size", "100GiB")
    done = pagecage(top, "cage", "show", *gp2, "--save", "customer-disk", "--as-disk", "wal")
    assert (done.status, "saved: cgroups/customer-disk.toml" in done.stderr) == (0, True)
    assert (top / "cgroups/customer-disk.toml").read_text().startswith(before)
    shown = json.loads(pagecage(top, "cage", "show", "customer-disk", "--json").stdout)["cage"]
    wal = shown["disks"]["wal"]
    assert (wal["volume"]["type"], wal["properties"]["IOReadIOPSMax"]) == ("gp2", 300)
    assert wal["burst"]["iops"]["rate"] == 3000
    assert "MemoryMax" not in wal["properties"]
    again = pagecage(top, "cage", "show", *gp2, "--save", "customer-disk", "--as-disk", "wal")
    assert (again.status, "has a disk wal already" in again.stderr) == (2, True)


def test_a_saved_cage_shows_the_same_limits(top: Path) -> None:
    pagecage(top, "cage", "show", *GP3, "--save", "customer-disk")
    from_type, from_file = shown_json(top, *GP3), shown_json(top, "customer-disk")
    for name, limit in from_type["limits"].items():
        speeds = [(phase["rate"], phase["seconds"]) for phase in limit["phases"]]
        assert [(p["rate"], p["seconds"]) for p in from_file["limits"][name]["phases"]] == speeds
    assert row(show(top, "customer-disk"), "IOPS")[:2] == ["IOPS", "6000"]


def test_a_latency_has_its_percentiles_and_its_source(top: Path) -> None:
    page = show(top, *GP3)
    source = "ScyllaDB diskplorer: latency maps of cloud disks"
    assert row(page, "read")[:4] == ["read", "512 B", "p50 440 us, p95 720 us", source]
    assert row(page, "write") == ["write", "not published"]
    assert "With --enforced-by volume, a simulated volume imposes the latencies." in page
    assert f"read latency: {source}, 2022" in page
    gp2 = row(show(top, "aws-gp2", "--size", "1TiB"), "read")
    assert gp2[2] == (
        "p50 410 us, p90 1.43 ms, p95 2.13 ms, p99 3.31 ms, p99.9 5.22 ms, p99.99 9.66 ms"
    )
    none = show(top, "aws-st1", "--size", "1TiB")
    assert "Latency: not published." in none
    assert "percentiles" not in none
    asked = show(top, *GP3, "--latency", "900us")
    assert "a least latency of 900 us for a read" in asked
    assert "percentiles" not in asked


def test_a_saved_cage_keeps_layers_and_latencies(top: Path) -> None:
    pagecage(top, "cage", "show", *GP3, "--save", "customer-disk")
    from_type, from_file = shown_json(top, *GP3), shown_json(top, "customer-disk")
    assert from_file["cage"]["simulation"] == from_type["cage"]["simulation"]
    assert from_file["cage"]["enforced_by"] == from_type["cage"]["enforced_by"] == "cgroup"
    cells = row(show(top, "customer-disk"), "read")
    assert cells[:3] == ["read", "512 B", "p50 440 us, p95 720 us"]
    uses = [one["use"] for one in from_type["measured_latency"]]
    assert (uses.count("distribution"), uses.count("at_cap"), uses.count("context")) == (1, 3, 1)


def test_the_customers_volume_imposes_the_latency_that_its_figures_imply(top: Path) -> None:
    page = show(top, "customer-volume")
    assert row(page, "read")[:3] == ["read", "128 KiB", "p50 4.1 ms"]
    assert "A simulated volume imposes the latencies." in page
    words = "cage floor customer-volume --bytes 28GB --reads 213624 --depth 1"
    told = pagecage(top, *words.split()).stdout
    assert "at least 14 min 36 s, because of mean read latency" in told


def test_nothing_is_written_over_unasked(top: Path) -> None:
    kept = (top / "cgroups/customer.toml").read_text()
    said = refused(top, "cage", "show", *GP3, "--save", "customer")
    assert "the cage customer already exists fix: choose another name, or add --force" in said
    assert (top / "cgroups/customer.toml").read_text() == kept
    assert pagecage(top, "cage", "show", *GP3, "--save", "customer", "--force").status == 0
    assert (top / "cgroups/customer.toml").read_text() != kept


def test_a_size_with_a_name_is_a_size(top: Path) -> None:
    page = show(top, "azure-p10")
    assert page.splitlines()[0] == "azure-premium-ssd  P10, 128 GiB"
    assert show(top, "azure-P10") == page
    same = show(top, "azure-premium-ssd", "--size", "100GiB")
    assert same.splitlines()[2:9] == page.splitlines()[2:9]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("customer", "200 MB/s (190.7 MiB/s)"),
        ("tenth", "10 % of the dataset"),
        ("uncaged", "no limit"),
        ("smoke", "500"),
    ],
)
def test_every_cage_has_a_page(top: Path, name: str, says: str) -> None:
    page = show(top, name)
    assert page.startswith(name)
    assert says in page


def test_data_is_unrounded_and_says_who_sets_what(top: Path) -> None:
    data = shown_json(top, "gcp-pd-standard", "--size", "10GiB", "--instance", "e2-medium")
    assert data["limits"]["read_iops"]["layers"] == [
        {"by": "gcp-pd-standard", "base": 7.5, "burst": None, "credits": None},
        {"by": "e2-medium", "base": 1000, "burst": None, "credits": None},
    ]
    assert data["limits"]["read_iops"]["phases"] == [
        {"rate": 7.5, "by": "gcp-pd-standard", "seconds": None, "credits_of": ""}
    ]
    assert data["cage"]["properties"] == {
        "IOReadBandwidthMax": 1258291,
        "IOReadIOPSMax": 7,
        "IOWriteBandwidthMax": 1258291,
        "IOWriteIOPSMax": 15,
        "MemorySwapMax": 0,
    }


def names(top: Path, *words: str) -> tuple[set[str], set[str]]:
    done = pagecage(top, "cage", "list", "--json", *words)
    assert done.status == 0, done.stderr
    data = json.loads(done.stdout)
    return {each["name"] for each in data["types"]}, {each["name"] for each in data["cages"]}


def test_the_list_filters(top: Path) -> None:
    types, cages = names(top)
    assert {"aws-gp3", "azure-ultra", "digitalocean-volume", "gcp-pd-ssd"} < types
    assert {"customer", "uncaged"} < cages
    assert all(name.startswith("aws-") for name in names(top, "--provider", "aws")[0])
    assert names(top, "--provider", "aws")[1] == set()
    assert names(top, "--type", "gp") == (
        {"aws-gp2", "aws-gp3"},
        {"aws-gp2-192m", "aws-gp2-tenth", "aws-gp3-192m", "aws-gp3-tenth", "gp3-wal-apart"},
    )
    fast, fast_cages = names(top, "--min-iops", "100000")
    assert {"azure-ultra", "gcp-pd-ssd", "aws-io2-block-express", "digitalocean-volume"} < fast
    assert not {"aws-gp3", "azure-premium-ssd"} & fast
    assert "uncaged" in fast_cages
    assert "customer" not in fast_cages


def test_the_list_for_people_has_every_type_and_cage(top: Path) -> None:
    done = pagecage(top, "cage", "list")
    types, cages = names(top)
    words = done.stdout.split()
    assert all(name in words for name in types | cages)
    assert "m7i.large" in words


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "aws-gp9 --size 1GiB",
            "there is no cage and no volume type 'aws-gp9' fix: did you mean \"aws-gp3\"?",
        ),
        ("gp3", 'fix: did you mean "aws-gp3"?'),
        ("zzz", "fix: pagecage cage list"),
        ("custmer", 'fix: did you mean "customer"?'),
        (
            "aws-gp3",
            "the limits of aws-gp3 depend on its size, and none is given fix: --size 500GiB",
        ),
        ("aws-gp3 --size 65TiB", "sold from 1 GiB to 64 TiB, not with 65 TiB fix: --size 64TiB"),
        ("aws-st1 --size 1GiB", "sold from 125 GiB to 16 TiB, not with 1 GiB fix: --size 125GiB"),
        (
            "aws-gp3 --size 500GB",
            "in steps of 1 GiB, and 500 GB are 465.66 GiB fix: --size 465GiB, or 466GiB",
        ),
        ("aws-gp3 --size 500", "--size: '500' has no clear unit"),
        ("aws-gp3 --size 10GiB --iops 6000", "not 6000 fix: --iops 5000, or --size 12GiB"),
        ("aws-gp3 --size 10GiB --iops 100", "may have 3000 to 5000 IOPS, not 100 fix: --iops 3000"),
        ("aws-gp3 --size 9TiB --iops 90000", "not 90000 fix: --iops 80000"),
        (
            "aws-gp3 --size 1TiB --throughput 1000",
            "aws-gp3 with 3000 IOPS may have 125 to 750 MiB/s, not 1000 MiB/s",
        ),
        ("aws-gp3 --size 1TiB --throughput 1000", "fix: --throughput 750, or --iops 4000"),
        ("aws-gp3 --size 1GiB --throughput 1000", "not 1000 MiB/s fix: --throughput 750\n"),
        ("aws-gp3 --size 1TiB --throughput 100", "not 100 MiB/s fix: --throughput 125\n"),
        ("azure-premium-ssd-v2 --size 1TiB --throughput 1000", "125 to 750 MB/s, not 1000 MB/s"),
        (
            "azure-premium-ssd-v2 --size 1TiB --throughput 1000MiB",
            "125 to 750 MB/s, not 1048.58 MB/s",
        ),
        ("aws-gp3 --size 1TiB --throughput 250M", "--throughput: '250M' has no clear unit"),
        (
            "aws-gp2 --size 10GiB --iops 3000",
            "does not take --iops, because its size and type decide fix: leave out --iops",
        ),
        ("aws-io1 --size 10GiB --iops 500 --throughput 1", "aws-io1 does not take --throughput"),
        (
            "aws-io1 --size 10GiB",
            "aws-io1 needs its provisioned IOPS, and none are given fix: --iops 500",
        ),
        (
            "azure-ultra --size 4GiB --iops 100",
            "needs its provisioned throughput, and none is given fix: --throughput 25",
        ),
        (
            "aws-gp3 --size 1TiB --instance m7i.lage",
            'in the catalogue fix: did you mean "m7i.large"?',
        ),
        ("aws-gp3 --size 1TiB --instance zzz", "fix: pagecage cage list --provider aws"),
        ("aws-gp3 --size 1TiB --instance D2s_v5", "Amazon EBS has no instance 'D2s_v5'"),
        (
            "gcp-hyperdisk-balanced --size 1TiB --instance n2-standard-4",
            "no limits of n2-standard-4 for gcp-hyperdisk",
        ),
        (
            "digitalocean-volume",
            "depend on the instance, and none is given fix: --instance standard-droplet",
        ),
        ("gcp-pd-extreme --size 1TiB --iops 100", "fix: --instance n2-standard-64"),
        ("digitalocean-volume --iops 5 --instance standard-droplet", "does not take --iops"),
        ("azure-p10 --size 10GiB", "azure-p10 has a fixed size fix: remove --size"),
        (
            "customer --scale 0.1",
            "customer is a cage: its limits are fixed fix: pagecage cage show customer",
        ),
        ("customer --save other", "customer is a cage: its limits are fixed"),
        (
            "aws-gp3 --size 1TiB --save ../x",
            "'../x' is not a valid name for a cage fix: use small letters",
        ),
        ("aws-gp3 --size 1TiB --save uncaged --force", "'uncaged' is not a valid name for a cage"),
        ("aws-gp3 --size 1TiB --save aws-gp3", "'aws-gp3' is a volume type of the catalogue"),
        ("aws-sc1 --size 125GiB --scale 0.1 --save x", "less than the kernel can count"),
        ("aws-gp3 --size 1TiB --memory 8G", "--memory: '8G' has no clear unit"),
        ("aws-gp3 --size 1TiB --scale 0", "--scale"),
        ("aws-gp3 --size 1TiB --scale nan", "--scale"),
        ("aws-gp3 --size 1TiB --scale inf", "--scale"),
        ("aws-gp3 --size 1TiB --iops 0", "--iops"),
        ("aws-gp3 --size 1TiB --start empty", "--start"),
        ("aws-gp3 --size 1TiB --latency 0us", "--latency"),
    ],
)
def test_bad_input_is_one_sentence_and_its_mend(top: Path, words: str, says: str) -> None:
    before = {path.name for path in (top / "cgroups").iterdir()}
    assert says in refused(top, "cage", "show", *words.split()) + "\n"
    assert {path.name for path in (top / "cgroups").iterdir()} == before


def test_the_document_shows_what_is_printed(top: Path) -> None:
    """Every command of docs/CLOUD.md runs; the table there is the one that the second of them
    prints.
    """
    text = (ROOT / "docs/CLOUD.md").read_text()
    shown = [
        shlex.split(line)[1:] for line in text.splitlines() if line.startswith("    pagecage cage ")
    ]
    assert len(shown) >= 5
    shutil.copy(ROOT / "tests/fixtures/imports/pod-with-volumes.yaml", top / "orders.yaml")
    pages = [pagecage(top, *words) for words in shown]
    assert [page.status for page in pages] == [0] * len(shown)
    table = text.split("The second command prints\n\n", 1)[1].split("\n\n", 1)[0]
    assert "\n".join(line.removeprefix("    ") for line in table.splitlines()) in pages[1].stdout


def test_an_unknown_provider_is_named(top: Path) -> None:
    said = refused(top, "cage", "list", "--provider", "asw")
    assert "there is no provider 'asw' in the catalogue fix: did you mean \"aws\"?" in said


def test_a_wrong_catalogue_is_named(top: Path) -> None:
    path = top / "cgroups/catalogue/aws.toml"
    path.write_text(path.read_text().replace('step = "1GiB"', 'step = "1G"', 1))
    said = refused(top, "cage", "list")
    assert "aws.toml: types.0.size.step: '1G' has no clear unit" in said
