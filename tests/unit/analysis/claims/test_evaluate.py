"""Tests of the evaluation of claims: rules, verdicts and reasons."""

from __future__ import annotations

import copy

import pytest

from analysis.articles.evaluate import evaluate_claims
from analysis.data.load import load_run
from tests.builders.run_edits import drop_device_figures
from tests.fixtures.records import after
from tests.fixtures.runs import DEFINITION, build_run


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
