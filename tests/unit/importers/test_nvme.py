"""Statistics of NVMe volumes, and their histograms of latency."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.definitions.cage_file import cage_of_tables
from pagecage.errors import PagecageError
from pagecage.importers.nvme import (
    OPEN_US,
    HistogramBin,
    count,
    quantiles,
    read_bins,
    subtract_bins,
)
from pagecage.importers.result import ImportResult
from pagecage.model.cage import LatencyQuantiles
from pagecage.model.volume_model import latency_at
from tests.builders.imports import FOLDER, read, read_files

BEFORE = (FOLDER / "nvme-amzn-stats-before.json").read_text()
AFTER = (FOLDER / "nvme-amzn-stats.json").read_text()
VOLUMES = json.dumps({"Volumes": [{"VolumeType": "gp3", "Size": 100, "Iops": 3000}]})


def changed(text: str, **values: Any) -> str:
    return json.dumps(json.loads(text) | values)


MORE_READS = changed(BEFORE, total_read_ops=10**6)


def observed(found: ImportResult) -> dict[str, float]:
    return {one.key: one.value for one in found.observed}


def texts(found: ImportResult) -> str:
    return "\n".join(one.text for one in found.observed)


def unsupported(found: ImportResult) -> str:
    return "\n".join(f"{one.what}: {one.reason}" for one in found.unsupported)


def test_one_file_covers_all_time_since_the_volume_was_attached() -> None:
    found = read(BEFORE)
    assert found.origin == "nvme amzn stats"
    assert observed(found) == pytest.approx(
        {
            "reads": 889,
            "read_mean_bytes": 19_936_256 / 889,
            "read_mean_us": 543_399 / 889,
            "writes": 11_792,
            "write_mean_bytes": 1_233_915_392 / 11_792,
            "write_mean_us": 21_647_790 / 11_792,
            "queue_length": 0,
            "volume_iops_exceeded_seconds": 0,
            "volume_throughput_exceeded_seconds": 0.804708,
            "instance_iops_exceeded_seconds": 0,
            "instance_throughput_exceeded_seconds": 0,
        }
    )
    assert "the demand exceeded the volume's throughput for 0.805 s" in texts(found)
    assert "%" not in texts(found), "the time since then is not known"


def test_two_files_cover_the_time_between() -> None:
    found = read_files(BEFORE, AFTER, seconds=60)
    simulation = cage_of_tables("x", found.cage()).simulation
    assert simulation is not None
    [reads] = simulation.read_latency
    assert reads.size_bytes == 4096
    assert [us for _, us in reads.quantiles] == [256, 512, 1024, 2048, 4096, 8192]
    assert reads.quantiles[1][0] == pytest.approx(15_869 / 60_329, abs=1e-8)
    [writes] = simulation.write_latency
    assert isinstance(writes, LatencyQuantiles)
    assert writes.size_bytes == 131_072
    assert observed(found)["read_mean_us"] == 597
    assert "60,329 reads, 1005 per second" in texts(found)
    assert "597 us per read on average; 650 us by the distribution" in texts(found)
    assert "exceeded the volume's throughput for 2.22 s, 3.7 % of 60 s" in texts(found)
    assert "never exceeded the instance's IOPS" in texts(found)
    assert "2 in the queue" in texts(found)


def test_alone_it_has_no_rates() -> None:
    found = read(AFTER)
    assert set(found.cage()) == {"about", "simulation"}
    assert cage_of_tables("x", found.cage()).enforced_by == "volume"
    assert "this file has no rates; add --volume" in unsupported(found)
    assert "so some requests waited" in unsupported(found)


@pytest.mark.parametrize("order", [(AFTER, VOLUMES), (VOLUMES, AFTER), (BEFORE, VOLUMES, AFTER)])
def test_a_description_of_the_volume_is_merged(order: tuple[str, ...]) -> None:
    found = read_files(*order)
    assert found.volume is not None
    assert found.volume.name == "aws-gp3"
    assert found.origin == "nvme amzn stats and aws ec2 describe-volumes"
    assert "has no rates" not in unsupported(found)
    assert "simulation" in found.cage()


def test_a_direction_that_was_not_used_has_no_latency() -> None:
    empty = {"num_bins": 1, "bins": [{"lower": 0, "upper": 1, "count": 0}]}
    quiet = changed(
        BEFORE,
        total_write_ops=0,
        total_write_bytes=0,
        total_write_time=0,
        write_io_latency_histogram=empty,
        ebs_volume_performance_exceeded_tp=0,
    )
    found = read(quiet)
    assert set(found.cage()["simulation"]) == {"read_latency"}
    assert "the latency of writes: no write was counted" in unsupported(found)
    assert "some requests waited" not in unsupported(found)
    assert "writes" not in observed(found)


def test_the_ends_of_a_histogram_are_told() -> None:
    ends = {
        "num_bins": 2,
        "bins": [
            {"lower": 0, "upper": 512, "count": 3},
            {"lower": 512, "upper": 2**64 - 1, "count": 5},
        ],
    }
    found = read(changed(BEFORE, read_io_latency_histogram=ends))
    assert "3 reads of the bin from 0 us are taken at its upper edge" in texts(found)
    assert "5 reads of the last bin, which is open, are taken at its lower edge" in texts(found)
    assert found.limits[0].value[0]["percentiles_us"] == {"0": 512.0, "37.5": 512.0, "100": 512.0}


def test_counts_that_wrapped_are_continued() -> None:
    """Counts have 32 bits, so at 3,000 reads per second they wrap after 16 days."""
    before, after = json.loads(BEFORE), json.loads(BEFORE)
    bins = before["read_io_latency_histogram"]["bins"]
    index = next(n for n, one in enumerate(bins) if one["count"] > 0)
    bins[index]["count"] = 2**32 - 100
    after["read_io_latency_histogram"]["bins"][index]["count"] = 900
    for key, more in (("total_read_ops", 1000), ("total_read_bytes", 4_096_000)):
        after[key] += more
    found = read_files(json.dumps(before), json.dumps(after))
    assert found.limits[0].basis == "histogram of 1,000 reads of 4 KiB on average"


SMART = json.dumps({"critical_warning": 0, "temperature": 310, "data_units_read": 5})
TEXT = "Total Ops:\n  Read: 5\n\nRead IO Latency Histogram\n[0 - 1 ] => 0\n"


def without(key: str) -> str:
    tree = json.loads(AFTER)
    del tree[key]
    return json.dumps(tree)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((AFTER, BEFORE), "b was read before a: its counters are lower"),
        ((AFTER, AFTER), "no read and no write was counted"),
        ((AFTER, MORE_READS), "total_write_ops is lower in b than in a: these are two volumes, or"),
        ((AFTER[: len(AFTER) // 2],), "a: invalid JSON in line"),
        ((TEXT,), "a is the text output of nvme amzn stats, not its JSON"),
        ((SMART,), "a is another log of nvme, without latencies"),
        (('{"bdev": "sdf"}',), "a is another log of nvme, without latencies"),
        ((without("read_io_latency_histogram"),), "a has no latency histogram"),
        ((without("total_read_time"),), "it lacks 'total_read_time'"),
        ((changed(AFTER, total_read_ops="many"),), "total_read_ops = 'many'"),
        ((changed(AFTER, volume_queue_length=-1),), "volume_queue_length = -1"),
        ((changed(AFTER, write_io_latency_histogram={}),), "it lacks 'bins'"),
        ((changed(AFTER, write_io_latency_histogram={"bins": [5]}),), "one of its values"),
        ((changed(AFTER, total_read_bytes=10**400),), "one of its values does not fit it"),
        ((AFTER, AFTER, AFTER), "3 such files cannot be imported at once"),
        ((VOLUMES, VOLUMES), "2 such files cannot be imported at once"),
        ((AFTER, "MemoryMax=5\n"), "b does not describe a volume of Amazon EBS"),
        ((AFTER, "{}"), "b is not a file that can be imported"),
        ((AFTER, ""), "b is empty"),
    ],
)
def test_a_broken_file_is_one_sentence(files: tuple[str, ...], message: str) -> None:
    with pytest.raises(PagecageError) as caught:
        read_files(*files)
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_a_histogram_that_fell_without_its_counter_is_refused() -> None:
    fallen = json.loads(AFTER)
    fallen["write_io_latency_histogram"]["bins"][11]["count"] = 0
    with pytest.raises(PagecageError, match="the histogram of writes fell between the two files"):
        read_files(BEFORE, json.dumps(fallen))


@pytest.mark.parametrize(
    ("read_it", "message"),
    [
        (lambda: read_files(BEFORE, AFTER, seconds=2), "shorter than the 2.22 s above a limit"),
        (lambda: read_files("MemoryMax=5\n", seconds=2), "--time applies only to nvme amzn"),
        (lambda: read_files("MemoryMax=5\n", is_described=True), "--volume applies only to nvme"),
        (lambda: read_files(AFTER, VOLUMES, is_described=True), "b describes the volume too"),
    ],
)
def test_options_that_do_not_fit_the_files(read_it: Callable[[], object], message: str) -> None:
    with pytest.raises(PagecageError, match=message):
        read_it()


EDGES = [0, *(2**n for n in range(28))]


def bins(counts: dict[int, int]) -> tuple[HistogramBin, ...]:
    return tuple(HistogramBin(low, high, counts.get(low, 0)) for low, high in pairwise(EDGES))


def test_percentiles_lie_at_the_edges() -> None:
    """The reads that a gp3 served at 1,000 per second."""
    found = quantiles(bins({256: 15_869, 512: 43_877, 1024: 514, 2048: 66, 4096: 3}))
    shares = [0, 15_869 / 60_329, 59_746 / 60_329, 60_260 / 60_329, 60_326 / 60_329, 1]
    assert [us for _, us in found] == [256, 512, 1024, 2048, 4096, 8192]
    assert [p for p, _ in found] == pytest.approx(shares, abs=1e-9)


def test_empty_bins_are_crossed_within_half_a_request() -> None:
    found = quantiles(bins({256: 3, 65_536: 1}))
    assert found == ((0.0, 256.0), (0.75, 512.0), (0.875, 65_536.0), (1.0, 131_072.0))


def test_the_bin_from_zero_is_taken_at_its_upper_edge() -> None:
    assert quantiles(bins({0: 1, 1: 1})) == ((0.0, 1.0), (0.5, 1.0), (1.0, 2.0))
    assert quantiles((HistogramBin(0, 256, 5),)) == ((0.0, 256.0), (1.0, 256.0))
    assert quantiles((HistogramBin(0, 0, 5),)) == ((0.0, 1.0), (1.0, 1.0))


@pytest.mark.parametrize("upper", [OPEN_US, 2**64 - 1])
def test_an_open_bin_is_taken_at_its_lower_edge(upper: int) -> None:
    found = quantiles((HistogramBin(512, 1024, 1), HistogramBin(1024, upper, 1)))
    assert found == ((0.0, 512.0), (0.5, 1024.0), (1.0, 1024.0))


def test_a_histogram_of_nothing_has_no_quantiles() -> None:
    with pytest.raises(ValueError, match="without requests"):
        quantiles(bins({}))


histograms = st.dictionaries(
    st.sampled_from(EDGES[:-1]), st.integers(0, 2**32 - 1), min_size=1
).filter(lambda counts: any(counts.values()))


@given(histograms)
def test_quantiles_rise_from_zero_to_one(counts: dict[int, int]) -> None:
    """pcvolume refuses probabilities that do not rise and latencies that fall."""
    found = quantiles(bins(counts))
    assert (found[0][0], found[-1][0]) == (0.0, 1.0)
    assert all(low[0] < high[0] and 0 < low[1] <= high[1] for low, high in pairwise(found))


@given(
    histograms.map(lambda counts: {low: n % 50 for low, n in counts.items()}).filter(
        lambda counts: any(counts.values())
    )
)
def test_drawing_gives_the_histogram_back(counts: dict[int, int]) -> None:
    """One draw in the middle of each request's share of the probability falls into its bin."""
    source = bins(counts)
    found, total = quantiles(source), count(source)
    number = 0
    for one in source:
        for _ in range(one.count):
            us = latency_at(found, (number + 0.5) / total)
            assert max(one.lower_us, 1) * (1 - 1e-3) <= us <= max(one.upper_us, 1) * (1 + 1e-3)
            number += 1


def test_a_difference_matches_bins_by_their_edges_and_counts_wrap() -> None:
    before = (HistogramBin(256, 512, 2**32 - 5), HistogramBin(512, 1024, 7))
    after = (HistogramBin(256, 512, 10), HistogramBin(512, 1024, 9), HistogramBin(1024, 2048, 1))
    assert [one.count for one in subtract_bins(after, before)] == [15, 2, 1]


def rows(*edges: tuple[object, object, object]) -> dict[str, object]:
    names = ("lower", "upper", "count")
    return {"num_bins": len(edges), "bins": [dict(zip(names, row, strict=True)) for row in edges]}


def test_bins_of_equal_edges_are_read() -> None:
    """Edges of fine bins round to one microsecond."""
    assert count(read_bins(rows((0, 1, 2), (1, 1, 3), (1, 2, 4)))) == 9


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ((512, 256, 1), "a bin from 512 to 256 us"),
        ((-1, 256, 1), "lower = -1"),
        ((0, 256, -1), "count = -1"),
        ((0, 256, "5"), "count = '5'"),
        ((0, 256, True), "count = True"),
        ((0, math.inf, 5), "upper = inf"),
        ((0, 5000, 5), "bins that overlap at 4096 us"),
    ],
)
def test_a_bin_that_makes_no_sense_is_refused(
    bad: tuple[object, object, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read_bins(rows(bad, (4096, 8192, 1)))
