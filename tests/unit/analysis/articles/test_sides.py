"""Sides of claims, knees and figures per unit."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.articles.evaluate import ClaimResult, evaluate_claims, evaluate_source_lines, kind_of
from analysis.articles.findings import evaluate_findings
from analysis.articles.scorecard import contradiction_sentences
from analysis.articles.sides import (
    arms_of,
    evaluate_knee,
    minima,
    per_unit,
    per_unit_heading,
    summarise_sides,
)
from analysis.cells import make_cell, treatments
from analysis.data.load import Run, load_run
from analysis.stats import MedianSummary
from analysis.views.run import main_table, minima_section
from pagecage.model.json_codec import Json
from pagecage.report.model import Heading, Table
from tests.builders.record_changes import responding, seconds, updated, where
from tests.fixtures.runs import DEFINITION, Change, build_run
from tests.fixtures.small_runs import unpacked

UNLOADED = {"cage": "uncaged", "source": "unloaded", "pattern": "sequential"}
RANDOM = {**UNLOADED, "pattern": "random"}
CLAIM = {
    "id": "003-1",
    "says": "it is so",
    "rule": "absolute",
    "published": 1.0,
    "unit": "s",
    "response": "full_pass_seconds",
    "where": UNLOADED,
    "needs": "any_size",
    "tolerance_factor": 2.0,
}


def run_with(
    tmp_path: Path, change: Change | None = None, findings: Iterable[Json] = (), **claim: Any
) -> Run:
    definition = copy.deepcopy(DEFINITION)
    definition["claims"], definition["findings"] = [{**CLAIM, **claim}], list(findings)

    def changed(record: Json) -> None:
        record["emulated"] = False
        if change:
            change(record)

    return load_run(build_run(tmp_path / "run", changed, definition=definition))


def judged(tmp_path: Path, change: Change | None = None, **claim: Any) -> ClaimResult:
    return evaluate_claims(run_with(tmp_path, change, **claim))[0]


def with_collector(name: str, **entry: object) -> Change:
    return lambda record: record["collectors"].update({name: entry})


def with_free_memory(record: Json) -> None:
    mib = 1000 if record["treatment"]["pattern"] == "random" else 1128
    meminfo = {"MemFree": mib * 1024, "MemTotal": 2048 * 1024, "MemAvailable": 2000 * 1024}
    if record["measured"]:
        for moment in ("before", "after"):
            record["counters"][moment]["host"]["meminfo"] = dict(meminfo)


def slow_on_the_heap(record: Json) -> None:
    if record["response"]:
        is_slow = record["treatment"]["source"] == "heap"
        record["response"]["full_pass_seconds"] = 9.0 if is_slow else 1.0


def restarted(record: Json) -> None:
    seconds(3.0, 3.0, 2.0)(record)
    record["boot_id"] = f"00000000-0000-4000-8000-00000000000{2 if record['repeat'] == 3 else 1}"


def on_a_stack(record: Json) -> None:
    if record["measured"]:
        for moment, reads in (("before", 7), ("after", 7 + 50 * record["measured"]["seconds"])):
            record["counters"][moment]["lower_device"] = {"reads": reads}


def with_other_reads(other_kib: int, by_loop: bool = False) -> Change:
    def change(record: Json) -> None:
        if record["measured"]:
            before, after = (record["counters"][m] for m in ("before", "after"))
            before["host"]["vmstat"]["pgpgin"] = before["device"]["sectors_read"] = 0
            after["device"]["sectors_read"] = 2000
            after["host"]["vmstat"]["pgpgin"] = 1000 + other_kib
            if by_loop:
                record["device"]["name"] = "loop3"
                before["lower_device"] = {"sectors_read": 0}
                after["lower_device"] = {"sectors_read": 2 * other_kib}
            record["measured"] = None

    return change


OTHER_HOST = where({"pattern": "random"}, updated(host="other"))
SPREAD = seconds(0.9, 1.5, 4.0)
UNTRACED = updated(measured=None, traces={})
PASSES = responding(pass_1_seconds=6.0, pass_2_seconds=2.0)
SAMPLES = responding(loads_ram_samples=30, loads_l1_samples=90)
WITHOUT_PEBS = with_collector("perf-mem", status="missing", reason="the CPU has no PEBS")
WITHOUT_BIO = with_collector(
    "blocklat", status="ok", reason=None, lost_events=0, unavailable=["bio_write_us"]
)
MINIMUM = {"statistic": "minimum"}
MAXIMUM = {"statistic": "maximum"}
RATIO = {"rule": "ratio", "over": RANDOM}
COUNT = {"response": "device_read_bytes", "unit": "x", "tolerance_factor": 1.05}
STATES: Json = {"rule": "difference", "over": RANDOM, "response": "free_free_before_bytes"}
STATES |= {"per": "dataset", "unit": "x", "tolerance_factor": 1.0}
GROWTH = {"rule": "range", "response": "free_used_growth_bytes", "per": "dataset", "unit": "x"}
SOURCES = [{"source": "resident"}, {"source": "heap"}]
FIXED = {"counts_as": "construction"}
BOOTS = {"rule": "ratio", "over_boot": True, "published": 1.5}
LOADS = {"response": "loads_ram_percent", "unit": "%"}
LOWER = {"response": "lower_device_reads_per_second", "unit": "1/s", "published": 50}
IDLE: Json = {"response": "other_disks_read_fraction", "unit": "fraction", "rule": "at_most"}
IDLE |= {"published": 0.01}
OF_THE_MINIMUM = {"n": 3, "low": 0.9, "high": 1.5, "kind": "minimum"}
HELD, NOT_HELD = {"verdict": "held"}, {"verdict": "not_held"}
UNDECIDED, NO_DATA = {"verdict": "undecided"}, {"verdict": "no_data"}
MISSED = {"verdict": "requirement_missed"}
ONE_BOOT = "^its trials ran in one boot of the host; restart it and resume the run$"
TWO_HOSTS = {"verdict": "not_comparable", "says": "^its trials ran on different hosts: other, vm$"}
NO_PEBS = "^the host lacks a requirement: the CPU has no PEBS$"
NO_BIO = "^the host lacks a requirement: bio_write_p99_us is not available by tracepoints$"
JUDGED: dict[str, tuple[Change | None, Json, Json]] = {
    "a median": (SPREAD, {}, UNDECIDED),
    "a minimum": (SPREAD, MINIMUM, {**HELD, **OF_THE_MINIMUM, "measured": 0.9}),
    "a minimum across a bound": (seconds(0.9, 3.0, 4.0), MINIMUM, {**UNDECIDED, "high": 3.0}),
    "a maximum": (SPREAD, {**MAXIMUM, "published": 3.0}, {**HELD, "measured": 4.0, "low": 1.5}),
    "a ratio of minima": (SPREAD, {**RATIO, **MINIMUM}, {"measured": 1.0}),
    "a size by which a response is divided frees it from the published size": (
        None,
        {**COUNT, "per": "dataset"},
        {**HELD, "measured": pytest.approx(1.0, abs=0.02)},
    ),
    "without a size": (None, {**COUNT, "per": "memory_limit"}, NO_DATA),
    "one treatment by two responses": (
        PASSES,
        {"rule": "ratio", "published": 3.0, "over": UNLOADED}
        | {"response": "pass_1_seconds", "over_response": "pass_2_seconds"},
        {**HELD, "measured": 3.0, "unit": "x"},
    ),
    **{
        f"a ratio of {rule} {published}": (
            seconds(1.0, 1.0, 1.0),
            {"rule": rule, "published": published, "over": RANDOM},
            {**verdict, "measured": 1.0},
        )
        for rule, published, verdict in (
            *(("at_least", 200, NOT_HELD), ("at_least", 0.9, HELD)),
            *(("at_most", 0.1, NOT_HELD), ("at_most", 1.0, HELD)),
        )
    },
    "a difference of two states in lengths of the file": (
        with_free_memory,
        {**STATES, "published": [0.8, 1.25]},
        {**HELD, "measured": 1.0, "unit": "x"},
    ),
    "a state that stays": (with_free_memory, {**STATES, "published": [-0.1, 0.1]}, NOT_HELD),
    "a growth": (with_free_memory, {**GROWTH, "published": [-0.1, 0.1]}, {**HELD, "measured": 0.0}),
    "the worst of several levels": (
        slow_on_the_heap,
        {"also": SOURCES},
        {**NOT_HELD, "measured": 9.0, "says": "one of 3 comparisons: cage=uncaged, source=heap"},
    ),
    "levels that hold": (slow_on_the_heap, {"also": SOURCES[:1]}, HELD),
    "9 by 9, both exchanged": (slow_on_the_heap, {**RATIO, "also": SOURCES}, HELD),
    "a construction": (SPREAD, FIXED, {"verdict": "by_construction", **FIXED}),
    "a wrong construction": (SPREAD, {**FIXED, "published": 9}, NOT_HELD),
    "repeats of the run": (
        None,
        {**FIXED, **MAXIMUM, "response": "repeat", "unit": "count", "published": 3},
        {"measured": 3},
    ),
    "one boot": (None, BOOTS, {**NO_DATA, "says": ONE_BOOT}),
    "two boots": (
        restarted,
        BOOTS,
        {**UNDECIDED, "measured": 1.5, "says": "a single trial does not show its spread$"},
    ),
    "one host": (None, {**RATIO, "published": 0.5}, HELD),
    "two hosts": (OTHER_HOST, {**RATIO, "published": 0.5}, TWO_HOSTS),
    "a figure that no collector gave": (None, LOADS, NO_DATA),
    "a collector that the host lacks": (
        WITHOUT_PEBS,
        LOADS,
        {**MISSED, "is_silent": True, "says": NO_PEBS},
    ),
    "a response of no collector": (WITHOUT_PEBS, {"response": "no_such_seconds"}, NO_DATA),
    "a latency that tracepoints cannot tell": (
        WITHOUT_BIO,
        {"response": "bio_write_p99_us", "unit": "us"},
        {**MISSED, "says": NO_BIO},
    ),
    "a latency that they can tell": (
        WITHOUT_BIO,
        {"response": "block_write_p99_us", "unit": "us"},
        NO_DATA,
    ),
    "samples as a share of all": (
        SAMPLES,
        {"response": "loads_ram_samples_percent", "unit": "%", "published": 25},
        {**HELD, "measured": 25},
    ),
    "rates of the lowest disk": (on_a_stack, LOWER, {"measured": pytest.approx(50)}),
    "one disk": (None, LOWER, NO_DATA),
    "idle disks": (with_other_reads(5), IDLE, HELD),
    "busy disks": (with_other_reads(1000), IDLE, {**NOT_HELD, "measured": 0.5}),
    "the disk below a loop device": (with_other_reads(1000, by_loop=True), IDLE, HELD),
    "no file of iostat": (UNTRACED, {"response": "iostat_reads_per_second"}, NO_DATA),
}
"""Changes of records, a claim, and what its result has; `says` is a pattern of the reason."""


@pytest.mark.parametrize("name", JUDGED)
def test_a_claim_is_judged(tmp_path: Path, name: str) -> None:
    change, claim, expected = JUDGED[name]
    result = judged(tmp_path, change, **claim)
    found = {key: getattr(result, key) for key in expected.keys() - {"says"}}
    assert found == {key: expected[key] for key in found}
    assert re.search(expected.get("says", ""), result.reason)


def test_minima_are_a_table_beside_the_published_ones(tmp_path: Path) -> None:
    run = run_with(tmp_path, seconds(0.9, 3.0, 4.0), statistic="minimum")
    [one] = minima(run)
    assert (one.minimum, one.n, one.published) == (0.9, 3, {"003-1": (1.0, "s")})
    heading, _, table = minima_section(run)
    assert heading == Heading("Minima")
    assert isinstance(table, Table)
    assert [cell.text for cell in table.rows[0]][1:] == ["0.9 s", "3", "1 s (003-1)"]
    assert list(minima_section(run_with(tmp_path / "none"))) == []


LINE = '{"disk_device": "sda", "r/s": %s, "rkB/s": %s, "w/s": 0, "wkB/s": %s}'


def iostat_of(*seconds: tuple[int, int, int]) -> str:
    """Give each trial an iostat file of `sda` with these reads, KiB read and KiB written."""
    rows = (f'{{"timestamp": "2026-11-21T10:00:00", "disk": [{LINE % row}]}}' for row in seconds)
    return f'{{"sysstat": {{"hosts": [{{"statistics": [{", ".join(rows)}]}}]}}}}'


def test_a_line_of_iostat_is_compared_with_the_median_second(tmp_path: Path) -> None:
    def named(record: Json) -> None:
        record["device"]["name"] = "sda"
        if record["traces"]:
            record["traces"]["iostat"] = f"trials/{record['trial_id']}.1/iostat.json"

    run = run_with(tmp_path, named)
    text = iostat_of((9, 9, 9), (100, 400, 0), (0, 0, 7), (110, 440, 0), (130, 520, 0), (2, 2, 90))
    for trial in run.trials:
        if trial.record.traces:
            (run.path / trial.record.traces["iostat"]).write_text(text)
    expected = {
        "reads_per_second": 110,  # without idle seconds, the first and the last
        "write_bytes_per_second": 0,
        "bytes_per_read": 4096,
    }
    for name, middle in expected.items():
        figure = summarise_sides(run, {**CLAIM, "response": f"iostat_{name}"}, [run.trials])
        assert figure is not None
        assert figure.middle == middle, name


def test_levels_that_a_side_does_not_share_stay() -> None:
    claim = {"where": {"a": "1", "b": "x"}, "over": {"a": "2", "b": "x"}, "also": [{"a": "3"}]}
    _, arm = arms_of(claim)
    assert (arm["where"], arm["over"]) == ({"a": "3", "b": "x"}, {"a": "2", "b": "x"})


@pytest.mark.parametrize(
    ("claim", "kind"),
    [
        ({}, "absolute"),
        ({"response": "resident_bytes", "needs": "published_size"}, "absolute"),
        ({"counts_as": "mechanism"}, "mechanism"),
        ({"rule": "config"}, "construction"),
        ({"rule": "source_lines"}, "construction"),
        ({"response": "amplification"}, "mechanism"),
        ({"per": "dataset"}, "mechanism"),
        ({**RATIO, "needs": "published_size"}, "mechanism"),
        ({"rule": "outcome", "response": None}, "mechanism"),
    ],
)
def test_the_kind_of_a_figure_follows_from_its_rule_unless_it_is_given(
    claim: Json, kind: str
) -> None:
    assert kind_of({**CLAIM, **claim}) == kind


def test_an_outcome_counts_on_a_noisy_host(tmp_path: Path) -> None:
    refused = updated(outcome="wrong_answer", error="400,000 failed calls")
    run = run_with(tmp_path, refused, rule="outcome", published="ran", unit="outcome")
    noisy = tuple(
        replace(t, verdicts=replace(t.verdicts, excluded=True, reasons=("host not quiet: x",)))
        for t in run.trials
    )
    [result] = evaluate_claims(replace(run, trials=noisy))
    assert (result.verdict, result.measured, result.n) == ("not_held", "wrong answer", 3)


def test_a_finding_refuses_different_hosts_and_equal_sides(tmp_path: Path) -> None:
    finding = {"says": "It is {value}", "response": "full_pass_seconds", "where": UNLOADED}
    tables = [{**finding, "over": RANDOM}, {**finding, "over": UNLOADED}]
    one, equal = evaluate_findings(run_with(tmp_path / "one", findings=tables))
    assert one.value
    assert (equal.value, equal.note) == (None, "it divides a figure by itself")
    two, _ = evaluate_findings(run_with(tmp_path / "two", OTHER_HOST, findings=tables))
    assert (two.value, two.note) == (None, "its trials ran on different hosts: other, vm")


def test_a_conclusion_that_does_not_hold_is_contradicted_and_no_other_claim(tmp_path: Path) -> None:
    claim: Json = {"rule": "ordering", "published": "greater", "over": RANDOM}
    run = run_with(tmp_path, origin="conclusion", **claim)
    [sentence] = contradiction_sentences(evaluate_claims(run))
    assert sentence.startswith("This run contradicts its article (003-1): it is so, published as")
    run = run_with(tmp_path / "article", origin="article", **claim)
    assert contradiction_sentences(evaluate_claims(run)) == []
    overlapping: Json = {"tolerance_factor": 1.0, **claim, "published": "about_equal"}
    run = run_with(tmp_path / "held", seconds(1, 2, 3), origin="conclusion", **overlapping)
    assert evaluate_claims(run)[0].verdict == "undecided"
    assert contradiction_sentences(evaluate_claims(run)) == []


def test_a_finding_states_the_verdict_of_its_claim(tmp_path: Path) -> None:
    table = {"says": "It is {value}", "response": "full_pass_seconds", "where": UNLOADED}
    table["claim"] = "003-1"
    [finding] = evaluate_findings(run_with(tmp_path / "held", seconds(1, 1, 1), findings=[table]))
    assert finding.note == "003-1 holds in this run"
    [finding] = evaluate_findings(run_with(tmp_path / "not", seconds(9, 9, 9), findings=[table]))
    assert finding.note == "003-1 does not hold in this run"


SLOPE = (1.0, 1.3, 1.7, 2.1, 2.6, 3.2)


def drifting(factor: float = 1.1, killed: Collection[int] = ()) -> Change:
    """Slow the host down from block to block; `random` takes `factor` as long as `sequential`."""

    def change(record: Json) -> None:
        if not record["response"]:
            return
        seconds = SLOPE[record["block"] - 1] * (1 if record["treatment"]["cage"] == "tenth" else 4)
        if record["treatment"]["pattern"] == "random":
            seconds *= factor + record["block"] / 1000
        record["response"]["full_pass_seconds"] = seconds
        record["measured"], record["traces"] = None, {}
        if record["block"] in killed and record["treatment"] == RANDOM:
            record["outcome"], record["response"] = "oom_killed", {}

    return change


def ordered(tmp_path: Path, change: Change, **claim: Any) -> ClaimResult:
    definition = copy.deepcopy(DEFINITION)
    table = {**CLAIM, "rule": "ordering", "published": "greater", "tolerance_factor": 1.2, **claim}
    definition["claims"], definition["findings"] = [table], []
    folder = build_run(tmp_path / "run", change, definition=definition, repeats=len(SLOPE))
    return evaluate_claims(load_run(folder))[0]


def bounds(result: ClaimResult) -> tuple[float, float]:
    assert result.low is not None
    assert result.high is not None
    return result.low, result.high


def test_sides_of_one_run_are_compared_within_blocks(tmp_path: Path) -> None:
    found = ordered(tmp_path, drifting(), where=RANDOM, over=UNLOADED)
    assert (found.n, found.kind) == (6, "94 %")
    low, high = bounds(found)
    assert 1.1 < low <= high < 1.11
    assert found.measured == pytest.approx(1.1035)


def test_a_block_without_one_side_is_left_out(tmp_path: Path) -> None:
    found = ordered(tmp_path, drifting(killed=[2]), where=RANDOM, over=UNLOADED)
    assert (found.n, found.kind) == (5, "94 %")
    assert found.low == pytest.approx(1.101)
    few = ordered(tmp_path / "few", drifting(killed=[2, 3]), where=RANDOM, over=UNLOADED)
    assert (few.n, few.kind) == (4, "range")


def test_trials_match_by_the_levels_that_a_claim_leaves_open(tmp_path: Path) -> None:
    """The cages differ fourfold, and each of their trials is compared with its own."""
    where, over = {"source": "unloaded", "pattern": "random"}, {"source": "unloaded"}
    found = ordered(tmp_path, drifting(), where=where, over={**over, "pattern": "sequential"})
    assert found.n == 12
    assert found.measured == pytest.approx(1.1035)
    assert bounds(found)[1] < 1.11


def test_two_ratios_are_compared_within_blocks(tmp_path: Path) -> None:
    than = {"than": {**UNLOADED, "cage": "tenth"}, "than_over": UNLOADED}
    rule = {"rule": "ordering_of_ratios", "where": RANDOM, "over": UNLOADED, **than}
    found = ordered(tmp_path, drifting(), **rule)
    assert (found.n, found.kind) == (6, "94 %")
    assert found.measured == pytest.approx(4 * 1.1035)


LEVELS = ["1", "512", "1024", "8192"]
KNEE = {"response": "full_pass_seconds", "along": "block", "tolerance_factor": 2.0}


def knee(
    *seconds: float | None, published: int
) -> tuple[MedianSummary | None, tuple[bool | None, str]]:
    trials: list[Any] = [
        SimpleNamespace(
            is_killed=False,
            record=SimpleNamespace(
                treatment={"block": level}, response={"full_pass_seconds": value}
            ),
        )
        for level, value in zip(LEVELS, seconds, strict=True)
    ]
    run: Any = SimpleNamespace(factors={"block": LEVELS})
    return evaluate_knee(run, {**KNEE, "published": published}, trials)


@pytest.mark.parametrize(
    ("seconds", "published", "middle", "held", "says"),
    [
        ((80, 8, 4, 3.9), 1024, 1024, True, "above 1,024"),
        ((80, 8, 8, 8), 8192, 512, False, ""),
        ((4, 4, 4, 4), 1024, None, False, "there is no knee"),
        ((5, 4, 4, 4), 1024, None, False, "there is no knee"),
        ((80, 40, 20, 10), 1024, None, False, "there is no knee"),
        ((80, None, 4, 4), 1024, None, None, "^no figure for block 512$"),
    ],
    ids=["published", "elsewhere", "equal", "too slight", "falling", "without a figure"],
)
def test_a_knee_is_the_level_from_which_on_nothing_is_gained(
    seconds: tuple[float | None, ...],
    published: int,
    middle: int | None,
    held: bool | None,
    says: str,
) -> None:
    summary, (found, reason) = knee(*seconds, published=published)
    assert (summary and summary.middle, found) == (middle, held)
    assert re.search(says, reason)


def test_lines_of_a_function_are_counted_without_comments() -> None:
    def lines_of(name: str) -> tuple[float | None, bool | None]:
        key = f"workloads/java/Segment.java: long {name}("
        claim = {"published": 10, "tolerance_factor": 2.0, "key": key}
        lines, (held, _) = evaluate_source_lines(claim)
        return lines, held

    assert lines_of("valueAt") == (3, False)
    assert lines_of("nosuch")[0] is None


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return load_run(unpacked("constrained-random", tmp_path / "run"))


def of(run: Run, **levels: str) -> tuple[str, str]:
    [treatment] = [t for t in treatments(run) if levels.items() <= dict(t).items()]
    return per_unit(run, make_cell(run, treatment, run.response))


def test_a_time_of_32_mib_and_one_of_10_gib_are_both_given_per_gib(run: Run) -> None:
    found = of(run, cage="uncaged", source="heap", pattern="sequential")
    assert found == ("0.984 s °", "0.14 s")  # 30.8 ms for 32 MiB, published 1.4 s for 10 GiB


def test_a_figure_of_excluded_trials_or_of_a_part_stays_marked(run: Run) -> None:
    assert of(run, cage="tenth", source="unloaded", pattern="random")[0].startswith("(≈ ")


def test_a_killed_program_has_no_time_per_gib(run: Run) -> None:
    assert of(run, cage="tenth", source="heap", pattern="random") == ("", "")


def test_a_treatment_of_another_size_has_no_published_time_per_gib(run: Run) -> None:
    trials = [{**t, "dataset": {**t["dataset"], "size_bytes": 2**20}} for t in run.plan["trials"]]
    other: Json = {**run.plan, "trials": trials}
    found = of(replace(run, plan=other), cage="uncaged", source="heap", pattern="sequential")
    assert found == ("31.5 s °", "")


def test_a_time_of_all_records_is_given_per_call(tmp_path: Path) -> None:
    run = load_run(unpacked("append-log", tmp_path / "run"))
    found = of(run, bytes="128", procs="4", method="writev")
    assert found == ("17.5 us °", "0.94 us")  # 69.8 ms for 4,000 records, as the article divides
    assert of(run, method="direct-misaligned")[0] == ""


def test_responses_that_do_not_grow_with_the_work_have_no_such_column() -> None:
    assert per_unit_heading("full_pass_seconds") == "per GiB"
    assert per_unit_heading("append_seconds") == "per call"
    assert not any(map(per_unit_heading, ("gap_max_us", "stalled_seconds", "amplification")))


def test_the_table_has_the_figure_below_the_measured_time(run: Run) -> None:
    detail = main_table(run).rows[0][2].detail
    assert detail.splitlines()[-1] == "per GiB 0.984 s ° (0.14 s)"
