"""Rules and verdicts of claims."""

from __future__ import annotations

import copy
import csv
from collections import Counter

import pytest

from analysis.articles.evaluate import (
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
from tests.builders.run_edits import drop_device_figures
from tests.fixtures.records import after
from tests.fixtures.runs import DEFINITION, build_run
from tests.tree import ROOT


def results(tmp_path, change=None, **plan):
    run = load_run(build_run(tmp_path / "run", change, **plan))
    return {result.id: result for result in evaluate_claims(run)}


def native(record):
    """Change a record to that of a machine without emulation."""
    record["emulated"] = False


def at_published_size(record):
    """Scale the fixture's times to the article's 10 GiB: memory 35-fold, the disk 20-fold."""
    native(record)
    if record["response"]:
        factor = {"heap": 35, "resident": 35, "unloaded": 20}[record["treatment"]["source"]]
        for name in ("full_pass_seconds", "read_seconds"):
            record["response"][name] *= factor
        record["measured"] = None  # there are no counters of that time


def test_every_claim_of_the_article_has_a_row(tmp_path):
    found = results(tmp_path)
    assert list(found) == [f"003-{line}" for line in range(177, 197)]
    assert all(result.reason for result in found.values())


def test_absolute_figures_are_never_held_under_emulation_or_at_another_size(tmp_path):
    for name, change, plan in (("a", None, {}), ("b", native, {}), ("c", None, {"size": "full"})):
        found = results(tmp_path / name, change, **plan)
        absolute = [c["id"] for c in DEFINITION["claims"] if c.get("needs") == "published_size"]
        assert {found[line].verdict for line in absolute} == {"not_comparable"}
        assert "10GiB" in found["003-177"].reason or name == "c"
        assert ("emulated" in found["003-177"].reason) == (name != "b")


def test_absolute_figures_are_judged_at_the_published_size_on_real_hardware(tmp_path):
    found = results(tmp_path, at_published_size, size="full")
    assert found["003-177"].verdict == "held"
    assert found["003-188"].verdict == "held"
    assert found["003-195"].verdict == "not_held"  # 3.8 GB were read, where 328 GB were published


def test_killed_is_held_only_when_all_were_killed(tmp_path):
    def survives(record):
        if record["trial_id"].endswith("tenth-heap-random-r2"):
            record["outcome"] = "ok"

    found = results(tmp_path, survives)
    assert (found["003-183"].verdict, found["003-184"].verdict) == ("held", "not_held")
    assert found["003-184"].reason.startswith("2 of 3 were killed for memory (kernel 6.12")
    assert "128MiB instead of 10GiB, emulated" in found["003-184"].reason


def test_ratios_that_the_emulated_cpu_decides_are_not_comparable(tmp_path):
    found = results(tmp_path)
    assert found["003-189"].verdict == "not_comparable"
    assert "numerator and denominator" in found["003-189"].reason


def test_ratios_that_a_limit_decides_are_judged_under_emulation_too(tmp_path):
    def held_by_the_disk(record):
        if record["measured"] and record["treatment"]["source"] == "unloaded":
            seconds = record["measured"]["seconds"]
            record["counters"] = after(seconds=seconds, cpu=0.1 * seconds, io_wait=0.9 * seconds)
            record["traces"] = {}
            drop_device_figures(record)

    found = results(tmp_path, held_by_the_disk)
    assert found["003-190"].verdict == "held"
    assert "cut short" in found["003-190"].reason


def test_ratios_are_held_within_a_factor_of_two(tmp_path):
    found = results(tmp_path, native)
    assert {c["tolerance_factor"] for c in DEFINITION["claims"] if c["rule"] == "ratio"} == {2.0}
    assert found["003-189"].verdict == "held"

    def even(record):
        native(record)
        if record["treatment"]["pattern"] == "random" and record["response"]:
            record["response"]["full_pass_seconds"] = 0.7

    found = results(tmp_path / "even", even)
    assert {found[f"003-{line}"].verdict for line in (189, 190, 191)} == {"not_held"}

    def far_too_slow(record):
        native(record)
        if record["treatment"]["pattern"] == "random" and record["response"]:
            record["response"]["full_pass_seconds"] *= 10

    found = results(tmp_path / "slow", far_too_slow)
    assert {found[f"003-{line}"].verdict for line in (189, 190)} == {"not_held"}


def test_half_a_cpu_makes_an_emulated_time_incomparable(tmp_path):
    def torn(record):
        if record["measured"]:
            seconds, busy = (
                record["measured"]["seconds"],
                0.6 if record["treatment"]["cage"] == "tenth" else 0.2,
            )
            record["counters"] = after(seconds=seconds, cpu=busy * seconds, io_wait=0.3 * seconds)
            record["traces"] = {}
            drop_device_figures(record)

    found = results(tmp_path, torn)
    assert found["003-189"].verdict == "held"
    assert found["003-190"].verdict == "not_comparable"
    assert "its numerator is mostly" in found["003-191"].reason


def test_amplification_is_a_count_and_is_judged_anywhere(tmp_path):
    found = results(tmp_path)["003-196"]
    assert found.verdict == "held"
    assert found.measured == pytest.approx(28.4, abs=0.1)


def test_excluded_trials_prove_nothing(tmp_path):
    def noisy(record):
        if record["treatment"]["cage"] == "tenth" and record["measured"]:
            record["cache"]["resident_bytes_before"] = 4096

    found = results(tmp_path, noisy)
    assert found["003-196"].verdict == "no_data"
    assert "excluded" in found["003-196"].reason
    assert found["003-177"].verdict == "not_comparable"


def test_a_claim_about_what_was_never_run_has_no_data(tmp_path):
    definition = copy.deepcopy(DEFINITION)
    definition["claims"][0]["response"] = "no_such_seconds"
    found = results(tmp_path, definition=definition)
    assert found["003-177"].verdict == "no_data"


def test_totals_of_a_cut_off_pass_stand_for_the_whole(tmp_path):
    found = results(tmp_path)["003-195"]
    assert found.measured == pytest.approx(28.4 * 0.134217728, rel=0.01)


def holds(rule, published, measured, factor=2.0):
    summary = measured if isinstance(measured, MedianSummary) else summarise([measured] * 2)
    return evaluate_figure(
        {"rule": rule, "published": published, "tolerance_factor": factor}, summary
    )[0]


@pytest.mark.parametrize(
    ("rule", "published", "held", "not_held"),
    [
        ("absolute", 10, (5, 10, 20), (4.9, 20.1)),
        ("absolute", 0, (0,), (0.001, 7)),
        ("ratio", 67, (34, 134), (33, 135)),
        ("range", [2.5, 3.0], (1.25, 2.7, 6.0), (1.2, 6.1)),
        ("at_most", 0.65, (0.1, 0.65), (0.66,)),
        ("at_most", 0, (0,), (1,)),
        ("at_least", 200, (200, 5000), (199,)),
        ("difference", [-0.1, 0.1], (-0.05, 0.05), (-0.21, 0.21)),
    ],
)
def test_a_rule_holds_within_its_bounds_and_no_further(rule, published, held, not_held):
    assert [value for value in held if not holds(rule, published, value)] == []
    assert [value for value in not_held if holds(rule, published, value)] == []


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
def test_a_figure_is_undecided_if_its_interval_reaches_across_a_bound(rule, published):
    factor = 1.0 if rule == "difference" else 2.0
    assert holds(rule, published, interval(6, 19), factor) is True
    far = interval(21, 30) if rule != "at_least" else interval(1, 4)
    assert holds(rule, published, far, factor) is False
    across = interval(19, 21) if rule != "at_least" else interval(4, 6)
    assert holds(rule, published, across, factor) is None
    assert holds(rule, published, interval(10, 10, n=1), factor) is None


def test_a_tighter_factor_holds_less():
    assert holds("absolute", 10, 12, 1.25)
    assert not holds("absolute", 10, 13, 1.25)
    assert holds("range", [1, 2], 2.0, 1.0)
    assert not holds("range", [1, 2], 2.1, 1.0)


def interval(low, high, n=3):
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
    rule, published, held, not_held, undecided
):
    for expected, intervals in ((True, held), (False, not_held), (None, undecided)):
        for ends in intervals:
            assert holds(rule, published, interval(*ends)) is expected, ends


def test_an_ordering_needs_two_trials_on_each_side():
    claim = {"rule": "ordering", "published": "less", "tolerance_factor": 2.0}
    assert evaluate_figure(claim, interval(0.1, 0.2, n=2))[0] is True
    held, reason = evaluate_figure(claim, interval(0.1, 0.1, n=1))
    assert held is None
    assert "a single trial" in reason
    assert "overlap" in evaluate_figure(claim, interval(0.7, 1.3))[1]


def test_a_ratio_to_nothing_is_infinite_and_nothing_to_nothing_is_one():
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
def test_a_response_is_converted_to_the_claims_unit(response, value, unit, expected):
    assert convert_response(response, value, unit) == pytest.approx(expected)


def test_every_unit_of_the_articles_is_known_and_another_is_an_error():
    units = {
        row["unit"]
        for file in (ROOT / "experiments/articles").glob("*.csv")
        for row in csv.DictReader(file.open())
    }
    assert len(units) > 20
    assert all(unit_scale(unit) > 0 for unit in units)
    with pytest.raises(PagecageError, match="furlong"):
        convert_response("read_seconds", 1.0, "furlong")


def test_times_and_rates_depend_on_the_cpu_and_counts_do_not():
    assert all(map(depends_on_cpu_speed, ("read_seconds", "heartbeat_p99_us", "bytes_per_second")))
    assert not any(
        map(
            depends_on_cpu_speed,
            ("amplification", "device_read_bytes", "major_faults", "covered_fraction"),
        )
    )
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
def test_a_config_claim_is_answered_by_the_definition(key, published, unit, held, measured):
    answer = evaluate_config({"key": key, "published": published}, PLANNED, unit_scale(unit))
    assert answer[:2] == (measured, held)


NAMES = {0x80100D1: ["READ", "MAYREAD", "RAND_READ"], 0xD1: ["READ", "MAYREAD"]}


@pytest.mark.parametrize(
    ("published", "unit", "held"),
    [
        (["VM_READ", "VM_MAYREAD", "VM_RAND_READ"], "flags", True),
        ("READ|MAYREAD|RAND_READ", "flags", True),
        (["READ", "MAYREAD"], "flags", False),
        (["READ", "MAYREAD", "RAND_READ", "SOFTDIRTY"], "flags", False),
        ("80100D1", "hex", True),
        (["0x80100d1"], "hex", True),
        ("80100D2", "hex", False),
        (134283473, "dec", True),
        (1254.0, "hex", False),
    ],
)
def test_flags_are_the_same_or_they_are_not(published, unit, held):
    assert compare_traced(published, unit, Counter({0x80100D1: 990, 0xD1: 3}), NAMES)[1] is held


def test_flags_hold_when_one_of_the_words_that_come_often_carries_them():
    found, names = Counter({1: 60, 2: 39, 4: 0}), {1: ["A", "B"], 2: ["A"], 4: ["C"]}
    assert compare_traced(["A"], "flags", found, names)[1]
    assert compare_traced(["A", "B"], "flags", found, names)[1]
    assert not compare_traced(["C"], "flags", found, names)[1]


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
def test_published_figures_are_formatted_readably(published, unit, text):
    assert format_published(published, unit) == text


def test_what_differs_in_flags_is_named():
    why = compare_traced(["READ", "SOFTDIRTY"], "flags", Counter({0x80100D1: 5}), NAMES)[2]
    assert why == "also MAYREAD RAND_READ, lacks SOFTDIRTY"


def test_frequent_words_count_and_rare_ones_do_not():
    found = Counter({0x1254: 600, 0x1A54: 390, 0x99: 1})
    names = {word: ["X"] for word in found}
    assert compare_traced("1254, 1a54", "hex", found, names)[1]
    assert not compare_traced(1254.0, "hex", found, names)[1]
    assert compare_traced(1254.0, "hex", Counter({0x1254: 5}), names)[1]


def test_a_published_word_counts_however_rare_it_is():
    found = Counter({0x1254: 8, 0x1A54: 8168, 0x99: 1})
    names = {word: ["X"] for word in found}
    assert compare_traced("1254, 1a54", "hex", found, names)[:2] == ("0x1254, 0x1a54", True)
    assert not compare_traced("1254, 1b54", "hex", found, names)[1]
    assert not compare_traced(1254.0, "hex", found, names)[1]


def test_read_ahead_sizes_and_whether_read_ahead_happened():
    assert compare_traced(32, "pages", Counter({32: 90, 16: 10}), {})[:2] == (32.0, True)
    assert not compare_traced(64, "pages", Counter({32: 90, 16: 10}), {})[1]
    assert compare_traced("yes", "bool", Counter({32: 9}), {})[1]
    assert not compare_traced("yes", "bool", Counter(), {})[1]
    assert compare_traced("none", "bool", Counter(), {})[1]
    assert compare_traced(32, "pages", Counter(), {}) == (
        None,
        False,
        "no such event in the measured part",
    )
