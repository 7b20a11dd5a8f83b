"""Rules and verdicts of claims."""

from __future__ import annotations

import copy
import csv
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from analysis.articles.evaluate import (
    ClaimResult,
    compare_traced,
    evaluate_claims,
    evaluate_config,
    evaluate_figure,
)
from analysis.data.load import load_run
from analysis.formatting import (
    convert_response,
    depends_on_cpu_speed,
    format_published,
    response_scale,
    unit_scale,
)
from analysis.stats import MedianSummary, median_ratio, summarise
from pagecage.errors import PagecageError
from pagecage.model.json_codec import Json
from tests.builders.record_changes import updated, warm, where
from tests.builders.run_edits import drop_device_figures
from tests.fixtures.records import after
from tests.fixtures.runs import DEFINITION, Change, build_run
from tests.tree import ROOT


def results(tmp_path: Path, change: Change | None = None, **plan: Any) -> dict[str, ClaimResult]:
    run = load_run(build_run(tmp_path / "run", change, **plan))
    return {result.id: result for result in evaluate_claims(run)}


native = updated(emulated=False)
"""Changes a record as if its machine were not emulated."""


def at_published_size(record: Json) -> None:
    """Scale the fixture's times to the article's 10 GiB: memory 35-fold, the disk 20-fold."""
    native(record)
    if record["response"]:
        factor = {"heap": 35, "resident": 35, "unloaded": 20}[record["treatment"]["source"]]
        for name in ("full_pass_seconds", "read_seconds"):
            record["response"][name] *= factor
        record["measured"] = None  # there are no counters of that time


def test_every_claim_of_the_article_has_a_row(tmp_path: Path) -> None:
    found = results(tmp_path)
    assert list(found) == [f"003-{line}" for line in range(177, 197)]
    assert all(result.reason for result in found.values())
    # An amplification is a count and is judged anywhere. Totals of a cut-off pass stand for the
    # whole. The emulated CPU decides the ratio.
    assert found["003-196"].verdict == "held"
    assert found["003-196"].measured == pytest.approx(28.4, abs=0.1)
    assert found["003-195"].measured == pytest.approx(28.4 * 0.134217728, rel=0.01)
    assert found["003-189"].verdict == "not_comparable"
    assert "numerator and denominator" in found["003-189"].reason


def test_absolute_figures_are_never_held_under_emulation_or_at_another_size(tmp_path: Path) -> None:
    for name, change, plan in (("a", None, {}), ("b", native, {}), ("c", None, {"size": "full"})):
        found = results(tmp_path / name, change, **plan)
        absolute = [c["id"] for c in DEFINITION["claims"] if c.get("needs") == "published_size"]
        assert {found[line].verdict for line in absolute} == {"not_comparable"}
        assert "10GiB" in found["003-177"].reason or name == "c"
        assert ("emulated" in found["003-177"].reason) == (name != "b")


def test_absolute_figures_are_judged_at_the_published_size_on_real_hardware(tmp_path: Path) -> None:
    found = results(tmp_path, at_published_size, size="full")
    assert found["003-177"].verdict == "held"
    assert found["003-188"].verdict == "held"
    assert found["003-195"].verdict == "not_held"  # 3.8 GB were read, where 328 GB were published


def test_killed_is_held_only_when_all_were_killed(tmp_path: Path) -> None:
    survives = where(
        {"cage": "tenth", "source": "heap", "pattern": "random"}, updated(outcome="ok"), repeat=2
    )
    found = results(tmp_path, survives)
    assert (found["003-183"].verdict, found["003-184"].verdict) == ("held", "not_held")
    assert found["003-184"].reason.startswith("2 of 3 were killed for memory (kernel 6.12")
    assert "128MiB instead of 10GiB, emulated" in found["003-184"].reason


def with_counters(record: Json, cpu_share: float, io_wait_share: float) -> None:
    seconds = record["measured"]["seconds"]
    figures = {"cpu": cpu_share * seconds, "io_wait": io_wait_share * seconds}
    record["counters"], record["traces"] = after(seconds=seconds, **figures), {}
    drop_device_figures(record)


def test_ratios_that_a_limit_decides_are_judged_under_emulation_too(tmp_path: Path) -> None:
    def held_by_the_disk(record: Json) -> None:
        if record["measured"] and record["treatment"]["source"] == "unloaded":
            with_counters(record, 0.1, 0.9)

    found = results(tmp_path, held_by_the_disk)
    assert found["003-190"].verdict == "held"
    assert "cut short" in found["003-190"].reason


def test_ratios_are_held_within_a_factor_of_two(tmp_path: Path) -> None:
    def at_random(seconds: float, factor: float) -> Change:
        def change(record: Json) -> None:
            native(record)
            if record["treatment"]["pattern"] == "random" and record["response"]:
                response = record["response"]
                response["full_pass_seconds"] = seconds + factor * response["full_pass_seconds"]

        return change

    assert {c["tolerance_factor"] for c in DEFINITION["claims"] if c["rule"] == "ratio"} == {2.0}
    assert results(tmp_path, native)["003-189"].verdict == "held"
    found = results(tmp_path / "even", at_random(0.7, 0))
    assert {found[f"003-{line}"].verdict for line in (189, 190, 191)} == {"not_held"}
    found = results(tmp_path / "slow", at_random(0, 10))
    assert {found[f"003-{line}"].verdict for line in (189, 190)} == {"not_held"}


def test_half_a_cpu_makes_an_emulated_time_incomparable(tmp_path: Path) -> None:
    def torn(record: Json) -> None:
        if record["measured"]:
            with_counters(record, 0.6 if record["treatment"]["cage"] == "tenth" else 0.2, 0.3)

    found = results(tmp_path, torn)
    assert found["003-189"].verdict == "held"
    assert found["003-190"].verdict == "not_comparable"
    assert "its numerator is mostly" in found["003-191"].reason


def test_excluded_trials_prove_nothing(tmp_path: Path) -> None:
    found = results(tmp_path, where({"cage": "tenth", "source": "unloaded"}, warm))
    assert found["003-196"].verdict == "no_data"
    assert "excluded" in found["003-196"].reason
    assert found["003-177"].verdict == "not_comparable"


def test_a_claim_about_what_was_never_run_has_no_data(tmp_path: Path) -> None:
    definition = copy.deepcopy(DEFINITION)
    definition["claims"][0]["response"] = "no_such_seconds"
    found = results(tmp_path, definition=definition)
    assert found["003-177"].verdict == "no_data"


def holds(
    rule: str, published: object, measured: float | MedianSummary, factor: float = 2.0
) -> bool | None:
    summary = measured if isinstance(measured, MedianSummary) else summarise([measured] * 2)
    claim = {"rule": rule, "published": published, "tolerance_factor": factor}
    return evaluate_figure(claim, summary)[0]


@pytest.mark.parametrize(
    ("rule", "published", "factor", "held", "not_held"),
    [
        ("absolute", 10, 2.0, (5, 10, 20), (4.9, 20.1)),
        ("absolute", 10, 1.25, (12,), (13,)),
        ("absolute", 0, 2.0, (0,), (0.001, 7)),
        ("ratio", 67, 2.0, (34, 134), (33, 135)),
        ("range", [2.5, 3.0], 2.0, (1.25, 2.7, 6.0), (1.2, 6.1)),
        ("range", [1, 2], 1.0, (2.0,), (2.1,)),
        ("at_most", 0.65, 2.0, (0.1, 0.65), (0.66,)),
        ("at_most", 0, 2.0, (0,), (1,)),
        ("at_least", 200, 2.0, (200, 5000), (199,)),
        ("difference", [-0.1, 0.1], 2.0, (-0.05, 0.05), (-0.21, 0.21)),
    ],
)
def test_a_rule_holds_within_its_bounds_and_no_further(
    rule: str,
    published: object,
    factor: float,
    held: tuple[float, ...],
    not_held: tuple[float, ...],
) -> None:
    assert [value for value in held if not holds(rule, published, value, factor)] == []
    assert [value for value in not_held if holds(rule, published, value, factor)] == []


@pytest.mark.parametrize(
    ("rule", "published"),
    [
        ("absolute", 10),
        ("ratio", 10),
        ("range", [10, 10]),
        ("difference", [5, 20]),
        ("at_most", 20),
        ("at_least", 5),
    ],
)
def test_a_figure_is_undecided_if_its_interval_reaches_across_a_bound(
    rule: str, published: int | list[int]
) -> None:
    factor = 1.0 if rule == "difference" else 2.0
    assert holds(rule, published, interval(6, 19), factor) is True
    far = interval(21, 30) if rule != "at_least" else interval(1, 4)
    assert holds(rule, published, far, factor) is False
    across = interval(19, 21) if rule != "at_least" else interval(4, 6)
    assert holds(rule, published, across, factor) is None
    assert holds(rule, published, interval(10, 10, n=1), factor) is None


def interval(low: float, high: float, n: int = 3) -> MedianSummary:
    return MedianSummary(n, (low + high) / 2, low, high, "range")


@pytest.mark.parametrize("rule", ["ordering", "ordering_of_ratios"])
@pytest.mark.parametrize(
    ("published", "held", "not_held", "undecided"),
    [
        ("less", [(0.4, 0.99)], [(1.01, 2), (1, 1)], [(0.7, 1.3), (0.9, 1.0)]),
        ("greater", [(1.01, 2)], [(0.4, 0.99), (1, 1)], [(0.7, 1.3), (1.0, 1.1)]),
        ("about_equal", [(0.5, 2), (1, 1)], [(0.3, 0.49), (2.1, 9)], [(0.4, 1), (1, 2.1)]),
    ],
)
def test_an_ordering_is_decided_only_by_ranges_that_are_apart(
    rule: str,
    published: str,
    held: list[tuple[float, ...]] | list[tuple[float, ...] | tuple[int, ...]],
    not_held: list[tuple[float, ...] | tuple[int, ...]] | list[tuple[float, ...]],
    undecided: list[tuple[float, ...]],
) -> None:
    for expected, intervals in ((True, held), (False, not_held), (None, undecided)):
        for ends in intervals:
            assert holds(rule, published, interval(*ends)) is expected, ends


def test_an_ordering_needs_two_trials_on_each_side() -> None:
    claim = {"rule": "ordering", "published": "less", "tolerance_factor": 2.0}
    assert evaluate_figure(claim, interval(0.1, 0.2, n=2))[0] is True
    held, reason = evaluate_figure(claim, interval(0.1, 0.1, n=1))
    assert held is None
    assert "a single trial" in reason
    assert "overlap" in evaluate_figure(claim, interval(0.7, 1.3))[1]


def test_a_ratio_to_nothing_is_infinite_and_nothing_to_nothing_is_one() -> None:
    assert holds("ordering", "greater", median_ratio([3.0] * 2, [0.0] * 2))
    assert median_ratio([0.0, 0.0], [0.0]).middle == 1.0
    assert not holds("ratio", 5, median_ratio([3.0] * 7, [0.0] * 7))


@pytest.mark.parametrize(
    ("response", "value", "unit", "expected"),
    [
        ("read_seconds", 1.5, "s", 1.5),
        ("read_seconds", 0.049, "ms", 49),
        ("read_seconds", 900, "min", 15),
        ("heartbeat_p999_us", 2500, "ms", 2.5),
        ("heartbeat_p999_us", 2500, "us", 2500),
        ("covered_fraction", 0.177, "%", 17.7),
        ("device_read_bytes", 10 * 2**30, "GiB", 10),
        ("device_read_bytes", 4096 * 7, "pages", 7),
        ("resident_pages", 262144, "GiB", 1),
        ("resident_pages", 12, "pages", 12),
        ("bytes_per_second", 943 * 2**20, "MiB/s", 943),
        ("bytes_per_second", 4.9e9, "GB/s", 4.9),
        ("gibit_per_second", 3.777, "GB/s (really Gibit/s)", 3.777),
        ("gibit_per_second", 8.0, "GiB/s", 1.0),
        ("reads_per_second", 242_000, "k/s", 242),
        ("reads_per_second", 5000, "1/s", 5000),
        ("request_bytes", 131072, "KiB", 128),
        ("amplification", 32, "x", 32),
        ("bytes_per_second", 2**30 / 8, "GB/s (really Gibit/s)", 1),
    ],
)
def test_a_response_is_converted_to_the_claims_unit(
    response: str, value: float, unit: str, expected: float
) -> None:
    assert convert_response(response, value, unit) == pytest.approx(expected)


def test_every_unit_of_the_articles_is_known_and_another_is_an_error() -> None:
    units = {
        row["unit"]
        for file in (ROOT / "experiments/articles").glob("*.csv")
        for row in csv.DictReader(file.open())
    }
    assert len(units) > 20
    assert all(unit_scale(unit) > 0 for unit in units)
    with pytest.raises(PagecageError, match="furlong"):
        convert_response("read_seconds", 1.0, "furlong")


def test_times_and_rates_depend_on_the_cpu_and_counts_do_not() -> None:
    times = ("read_seconds", "heartbeat_p99_us", "bytes_per_second")
    counts = ("amplification", "device_read_bytes", "major_faults", "covered_fraction")
    assert all(map(depends_on_cpu_speed, times))
    assert not any(map(depends_on_cpu_speed, counts))
    assert response_scale("major_faults") == 1.0


PLANNED = {
    "sizes": {"full": {"files": 8, "dataset": "256MiB"}},
    "factors": {"exec": ["a", "b"]},
    "kind": "fio",
}


@pytest.mark.parametrize(
    ("key", "published", "unit", "held", "measured"),
    [
        ("sizes.full.files", 8, "count", True, 8),
        ("sizes.full.files", 7, "count", False, 8),
        ("sizes.full.dataset", 256, "MiB", True, 256),
        ("sizes.full.dataset", 0.25, "GiB", True, 0.25),
        ("sizes.full.dataset", 256, "MB", False, pytest.approx(268.4, abs=0.1)),
        ("factors.exec", 2, "count", True, 2),
        ("factors.exec", 3, "count", False, 2),
        ("factors.exec", ["a", "b"], "qual", True, "a, b"),
        ("factors.exec", "b", "qual", True, "a, b"),
        ("factors.exec", "a, b", "qual", True, "a, b"),
        ("factors.exec", "c", "qual", False, "a, b"),
        ("kind", "fio", "qual", True, "fio"),
        ("kind", "8", "qual", False, "fio"),
        ("sizes.full.nothing", 8, "count", False, None),
        ("sizes.full.files.deeper", 8, "count", False, None),
    ],
)
def test_a_config_claim_is_answered_by_the_definition(
    key: str, published: float | list[str] | str, unit: str, held: bool, measured: object
) -> None:
    answer = evaluate_config({"key": key, "published": published}, PLANNED, unit_scale(unit))
    assert answer[:2] == (measured, held)


NAMES = {
    0x80100D1: ["READ", "MAYREAD", "RAND_READ"],
    0xD1: ["READ", "MAYREAD"],
    1: ["A", "B"],
    2: ["A"],
    4: ["C"],
    0x1254: ["X"],
    0x1A54: ["X"],
    0x99: ["X"],
}
FLAGS = {0x80100D1: 990, 0xD1: 3}
FREQUENT = {1: 60, 2: 39, 4: 0}
RARE = {0x1254: 600, 0x1A54: 390, 0x99: 1}
RARER = {0x1254: 8, 0x1A54: 8168, 0x99: 1}
PAGES = {32: 90, 16: 10}


def traced(
    published: object, unit: str, counts: dict[int, int]
) -> tuple[str | float | None, bool, str]:
    """Compare words that have names, or numbers of pages, which have none."""
    return compare_traced(published, unit, Counter(counts), {} if unit == "pages" else NAMES)


@pytest.mark.parametrize(
    ("published", "unit", "counts", "held"),
    [
        (["VM_READ", "VM_MAYREAD", "VM_RAND_READ"], "flags", FLAGS, True),
        ("READ|MAYREAD|RAND_READ", "flags", FLAGS, True),
        (["READ", "MAYREAD"], "flags", FLAGS, False),
        (["READ", "MAYREAD", "RAND_READ", "SOFTDIRTY"], "flags", FLAGS, False),
        ("80100D1", "hex", FLAGS, True),
        (["0x80100d1"], "hex", FLAGS, True),
        ("80100D2", "hex", FLAGS, False),
        (134283473, "dec", FLAGS, True),
        (1254.0, "hex", FLAGS, False),
        (["A"], "flags", FREQUENT, True),
        (["A", "B"], "flags", FREQUENT, True),
        (["C"], "flags", FREQUENT, False),
        ("1254, 1a54", "hex", RARE, True),
        (1254.0, "hex", RARE, False),
        (1254.0, "hex", {0x1254: 5}, True),
        ("1254, 1a54", "hex", RARER, True),
        ("1254, 1b54", "hex", RARER, False),
        (1254.0, "hex", RARER, False),
        (32, "pages", PAGES, True),
        (64, "pages", PAGES, False),
        ("yes", "bool", {32: 9}, True),
        ("yes", "bool", {}, False),
        ("none", "bool", {}, True),
        (32, "pages", {}, False),
    ],
)
def test_traced_words_are_as_published_if_the_frequent_ones_are(
    published: object, unit: str, counts: dict[int, int], held: bool
) -> None:
    assert traced(published, unit, counts)[1] is held


def test_a_traced_value_is_given_and_what_differs_is_named() -> None:
    why = "also MAYREAD RAND_READ, lacks SOFTDIRTY"
    assert traced(["READ", "SOFTDIRTY"], "flags", {0x80100D1: 5})[2] == why
    assert traced("1254, 1a54", "hex", RARER)[0] == "0x1254, 0x1a54"
    assert traced(32, "pages", PAGES)[0] == 32.0
    assert traced(32, "pages", {}) == (None, False, "no such event in the measured part")


@pytest.mark.parametrize(
    ("published", "unit", "text"),
    [
        (1254.0, "hex", "0x1254"),
        ("80000D1", "hex", "0x80000d1"),
        ("1254, 1a54", "hex", "0x1254, 0x1a54"),
        (134283473, "dec", "134283473"),
        ("134283473 / 32 / 1028", "dec", "134283473 / 32 / 1028"),
        ("ALLOW_RETRY|USER", "flags", "ALLOW_RETRY|USER"),
        ("about_equal", "qual", "about equal"),
        ([2.5, 3.0], "s", "2.5 – 3 s"),
        (["A", "B"], "flags", "A B"),
        ("2.5-3", "s", "2.5-3 s"),
        (8, "count", "8"),
        (67, "x", "67×"),
    ],
)
def test_published_figures_are_formatted_readably(
    published: float | str | list[float] | list[str], unit: str, text: str
) -> None:
    assert format_published(published, unit) == text
