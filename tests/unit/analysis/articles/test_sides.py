"""Sides of claims, knees and figures per unit."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.articles.evaluate import evaluate_claims, evaluate_source_lines, kind_of
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
from analysis.views.run import main_table, minima_section
from tests.fixtures.runs import DEFINITION, build_run
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


def run_with(tmp_path, change=None, findings=(), **claim):
    definition = copy.deepcopy(DEFINITION)
    definition["claims"], definition["findings"] = [{**CLAIM, **claim}], list(findings)

    def changed(record):
        record["emulated"] = False
        if change:
            change(record)

    return load_run(build_run(tmp_path / "run", changed, definition=definition))


def judged(tmp_path, change=None, **claim):
    return evaluate_claims(run_with(tmp_path, change, **claim))[0]


def seconds(*by_repeat):
    """Give the trials of each repeat a time."""

    def change(record):
        if record["response"]:
            record["response"]["full_pass_seconds"] = by_repeat[record["repeat"] - 1]

    return change


def test_a_minimum_is_judged_by_the_minimum_and_the_one_without_it(tmp_path):
    change = seconds(0.9, 1.5, 4.0)
    assert judged(tmp_path / "median", change).verdict == "undecided"
    result = judged(tmp_path / "minimum", change, statistic="minimum")
    assert (result.verdict, result.measured, result.n) == ("held", 0.9, 3)
    assert (result.low, result.high, result.kind) == (0.9, 1.5, "minimum")
    across = judged(tmp_path / "across", seconds(0.9, 3.0, 4.0), statistic="minimum")
    assert (across.verdict, across.high) == ("undecided", 3.0)
    best = judged(tmp_path / "maximum", change, statistic="maximum", published=3.0)
    assert (best.verdict, best.measured, best.low) == ("held", 4.0, 1.5)
    both = {"rule": "ratio", "over": RANDOM, "statistic": "minimum"}
    assert judged(tmp_path / "ratio", change, **both).measured == 1.0


def test_minima_are_a_table_beside_the_published_ones(tmp_path):
    run = run_with(tmp_path, seconds(0.9, 3.0, 4.0), statistic="minimum")
    [one] = minima(run)
    assert (one.minimum, one.n, one.published) == (0.9, 3, {"003-1": (1.0, "s")})
    heading, _, table = minima_section(run)
    assert heading.text == "Minima"
    assert [cell.text for cell in table.rows[0]][1:] == ["0.9 s", "3", "1 s (003-1)"]
    assert list(minima_section(run_with(tmp_path / "none"))) == []


def test_a_size_by_which_a_response_is_divided_frees_it_from_the_published_size(tmp_path):
    count = {"response": "device_read_bytes", "unit": "x", "tolerance_factor": 1.05}
    result = judged(tmp_path, per="dataset", **count)
    assert (result.verdict, result.measured) == ("held", pytest.approx(1.0, abs=0.02))
    assert judged(tmp_path / "none", per="memory_limit", **count).verdict == "no_data"


def test_one_treatment_is_compared_by_two_responses(tmp_path):
    def change(record):
        if record["response"]:
            record["response"] |= {"pass_1_seconds": 6.0, "pass_2_seconds": 2.0}

    both = {"response": "pass_1_seconds", "over_response": "pass_2_seconds", "over": UNLOADED}
    result = judged(tmp_path, change, rule="ratio", published=3.0, **both)
    assert (result.verdict, result.measured, result.unit) == ("held", 3.0, "x")


def test_a_bound_of_a_ratio_divides_the_sides(tmp_path):
    change = seconds(1.0, 1.0, 1.0)
    for rule, published, verdict in (
        ("at_least", 200, "not_held"),
        ("at_least", 0.9, "held"),
        ("at_most", 0.1, "not_held"),
        ("at_most", 1.0, "held"),
    ):
        folder = tmp_path / f"{rule}{published}"
        result = judged(folder, change, rule=rule, published=published, over=RANDOM)
        assert (result.verdict, result.measured) == (verdict, 1.0)


def test_a_difference_of_two_states_is_in_lengths_of_the_file(tmp_path):
    def change(record):
        mib = 1000 if record["treatment"]["pattern"] == "random" else 1128
        meminfo = {"MemFree": mib * 1024, "MemTotal": 2048 * 1024, "MemAvailable": 2000 * 1024}
        if record["measured"]:
            for moment in ("before", "after"):
                record["counters"][moment]["host"]["meminfo"] = dict(meminfo)

    states = {"rule": "difference", "over": RANDOM, "per": "dataset", "unit": "x"}
    states |= {"response": "free_free_before_bytes", "tolerance_factor": 1.0}
    result = judged(tmp_path, change, published=[0.8, 1.25], **states)
    assert (result.verdict, result.measured, result.unit) == ("held", 1.0, "x")
    result = judged(tmp_path / "stays", change, published=[-0.1, 0.1], **states)
    assert result.verdict == "not_held"
    stays = {"per": "dataset", "unit": "x", "rule": "range", "published": [-0.1, 0.1]}
    result = judged(tmp_path / "grows", change, response="free_used_growth_bytes", **stays)
    assert (result.verdict, result.measured) == ("held", 0.0)


LINE = '{"disk_device": "sda", "r/s": %s, "rkB/s": %s, "w/s": 0, "wkB/s": %s}'


def iostat_of(*seconds):
    """Give each trial an iostat file of `sda` with these reads, KiB read and KiB written."""
    rows = (f'{{"timestamp": "2026-11-21T10:00:00", "disk": [{LINE % row}]}}' for row in seconds)
    return f'{{"sysstat": {{"hosts": [{{"statistics": [{", ".join(rows)}]}}]}}}}'


def test_a_line_of_iostat_is_compared_with_the_median_second(tmp_path):
    def named(record):
        record["device"]["name"] = "sda"
        if record["traces"]:
            record["traces"]["iostat"] = f"trials/{record['trial_id']}.1/iostat.json"

    run = run_with(tmp_path, named)
    text = iostat_of((9, 9, 9), (100, 400, 0), (0, 0, 7), (110, 440, 0), (130, 520, 0), (2, 2, 90))
    for trial in run.trials:
        if trial.record.traces:
            (run.path / trial.record.traces["iostat"]).write_text(text)
    figures = {
        name: summarise_sides(run, {**CLAIM, "response": f"iostat_{name}"}, [run.trials])
        for name in ("reads_per_second", "write_bytes_per_second", "bytes_per_read")
    }
    middles = {name: figure.middle for name, figure in figures.items()}
    assert middles == {
        "reads_per_second": 110,  # without idle seconds, the first and the last
        "write_bytes_per_second": 0,
        "bytes_per_read": 4096,
    }

    def untraced(record):
        record["measured"], record["traces"] = None, {}

    found = judged(tmp_path / "none", untraced, response="iostat_reads_per_second")
    assert found.verdict == "no_data"


def test_a_claim_about_several_levels_is_judged_by_the_worst(tmp_path):
    def change(record):
        if record["response"]:
            is_slow = record["treatment"]["source"] == "heap"
            record["response"]["full_pass_seconds"] = 9.0 if is_slow else 1.0

    both = {"also": [{"source": "resident"}, {"source": "heap"}]}
    result = judged(tmp_path, change, **both)
    assert (result.verdict, result.measured) == ("not_held", 9.0)
    assert "one of 3 comparisons: cage=uncaged, source=heap" in result.reason
    assert judged(tmp_path / "one", change, also=both["also"][:1]).verdict == "held"
    ratio = {"rule": "ratio", "over": RANDOM, **both}
    assert judged(tmp_path / "ratio", change, **ratio).verdict == "held"  # 9 by 9, both exchanged


def test_levels_that_a_side_does_not_share_stay(tmp_path):
    claim = {"where": {"a": "1", "b": "x"}, "over": {"a": "2", "b": "x"}, "also": [{"a": "3"}]}
    _, arm = arms_of(claim)
    assert (arm["where"], arm["over"]) == ({"a": "3", "b": "x"}, {"a": "2", "b": "x"})


def test_the_kind_of_a_figure_follows_from_its_rule_unless_it_is_given():
    def kind(**claim):
        return kind_of({**CLAIM, **claim})

    assert kind() == kind(response="resident_bytes", needs="published_size") == "absolute"
    assert kind(counts_as="mechanism") == "mechanism"
    assert kind(rule="config") == kind(rule="source_lines") == "construction"
    assert kind(response="amplification") == kind(per="dataset") == "mechanism"
    assert kind(rule="ratio", over=RANDOM, needs="published_size") == "mechanism"
    assert kind(rule="outcome", response=None) == "mechanism"


def test_a_construction_is_neither_held_nor_undecided(tmp_path):
    change = seconds(1.0, 1.5, 4.0)
    fixed = judged(tmp_path, change, counts_as="construction")
    assert (fixed.verdict, fixed.counts_as) == ("by_construction", "construction")
    other = judged(tmp_path / "other", change, counts_as="construction", published=9)
    assert other.verdict == "not_held"


def test_repeats_are_those_of_the_run(tmp_path):
    repeats = {"response": "repeat", "statistic": "maximum", "unit": "count", "published": 3}
    assert judged(tmp_path, counts_as="construction", **repeats).measured == 3


def test_an_outcome_counts_on_a_noisy_host(tmp_path):
    def refused(record):
        record["outcome"], record["error"] = "wrong_answer", "400,000 failed calls"

    run = run_with(tmp_path, refused, rule="outcome", published="ran", unit="outcome")
    noisy = tuple(
        replace(t, verdicts=replace(t.verdicts, excluded=True, reasons=("host not quiet: x",)))
        for t in run.trials
    )
    [result] = evaluate_claims(replace(run, trials=noisy))
    assert (result.verdict, result.measured, result.n) == ("not_held", "wrong answer", 3)


def test_a_restart_is_judged_by_trials_of_two_boots(tmp_path):
    rule = {"rule": "ratio", "over_boot": True, "published": 1.5}
    result = judged(tmp_path / "one", **rule)
    assert (result.verdict, result.reason) == (
        "no_data",
        "its trials ran in one boot of the host; restart it and resume the run",
    )

    def restarted(record):
        seconds(3.0, 3.0, 2.0)(record)
        record["boot_id"] = (
            f"00000000-0000-4000-8000-00000000000{2 if record['repeat'] == 3 else 1}"
        )

    result = judged(tmp_path / "two", restarted, **rule)
    assert (result.verdict, result.measured) == ("undecided", 1.5)
    assert result.reason.endswith("a single trial does not show its spread")


def other_host(record):
    if record["treatment"]["pattern"] == "random":
        record["host"] = "other"


def test_trials_of_different_hosts_are_never_put_into_one_figure(tmp_path):
    ratio = {"rule": "ratio", "published": 0.5, "over": RANDOM}
    assert judged(tmp_path / "one", **ratio).verdict == "held"
    result = judged(tmp_path / "two", other_host, **ratio)
    assert result.verdict == "not_comparable"
    assert result.reason == "its trials ran on different hosts: other, vm"


def test_a_finding_refuses_different_hosts_and_equal_sides(tmp_path):
    finding = {"says": "It is {value}", "response": "full_pass_seconds", "where": UNLOADED}
    tables = [{**finding, "over": RANDOM}, {**finding, "over": UNLOADED}]
    one, equal = evaluate_findings(run_with(tmp_path / "one", findings=tables))
    assert one.value
    assert (equal.value, equal.note) == (None, "it divides a figure by itself")
    two, _ = evaluate_findings(run_with(tmp_path / "two", other_host, findings=tables))
    assert (two.value, two.note) == (None, "its trials ran on different hosts: other, vm")


def test_a_conclusion_that_does_not_hold_is_contradicted_and_no_other_claim(tmp_path):
    claim = {"rule": "ordering", "published": "greater", "over": RANDOM}
    run = run_with(tmp_path, origin="conclusion", **claim)
    [sentence] = contradiction_sentences(evaluate_claims(run))
    assert sentence.startswith("This run contradicts its article (003-1): it is so, published as")
    run = run_with(tmp_path / "article", origin="article", **claim)
    assert contradiction_sentences(evaluate_claims(run)) == []
    overlapping = {"tolerance_factor": 1.0, **claim, "published": "about_equal"}
    run = run_with(tmp_path / "held", seconds(1, 2, 3), origin="conclusion", **overlapping)
    assert evaluate_claims(run)[0].verdict == "undecided"
    assert contradiction_sentences(evaluate_claims(run)) == []


def test_a_finding_states_the_verdict_of_its_claim(tmp_path):
    table = {"says": "It is {value}", "response": "full_pass_seconds", "where": UNLOADED}
    table["claim"] = "003-1"
    [finding] = evaluate_findings(run_with(tmp_path / "held", seconds(1, 1, 1), findings=[table]))
    assert finding.note == "003-1 holds in this run"
    [finding] = evaluate_findings(run_with(tmp_path / "not", seconds(9, 9, 9), findings=[table]))
    assert finding.note == "003-1 does not hold in this run"


def test_a_response_of_a_collector_that_the_host_lacks_is_a_missed_requirement(tmp_path):
    loads = {"response": "loads_ram_percent", "unit": "%"}
    assert judged(tmp_path / "without", **loads).verdict == "no_data"

    def missing(record):
        record["collectors"]["perf-mem"] = {"status": "missing", "reason": "the CPU has no PEBS"}

    result = judged(tmp_path / "missing", missing, **loads)
    assert (result.verdict, result.reason) == (
        "requirement_missed",
        "the host lacks a requirement: the CPU has no PEBS",
    )
    assert result.is_silent
    assert judged(tmp_path / "other", missing, response="no_such_seconds").verdict == "no_data"


def test_a_latency_that_tracepoints_cannot_tell_is_a_missed_requirement(tmp_path):
    def told(record):
        entry = {"status": "ok", "reason": None, "lost_events": 0, "unavailable": ["bio_write_us"]}
        record["collectors"]["blocklat"] = entry

    result = judged(tmp_path / "bio", told, response="bio_write_p99_us", unit="us")
    assert (result.verdict, result.reason) == (
        "requirement_missed",
        "the host lacks a requirement: bio_write_p99_us is not available by tracepoints",
    )
    other = judged(tmp_path / "rq", told, response="block_write_p99_us", unit="us")
    assert other.verdict == "no_data"


def test_a_number_of_samples_is_compared_as_a_share_of_all(tmp_path):
    def sampled(record):
        if record["response"]:
            record["response"] |= {"loads_ram_samples": 30, "loads_l1_samples": 90}

    claim = {"response": "loads_ram_samples_percent", "unit": "%", "published": 25}
    result = judged(tmp_path, sampled, **claim)
    assert (result.verdict, result.measured) == ("held", 25)


def test_the_rates_of_the_lowest_disk_are_its_totals_over_the_measured_part(tmp_path):
    def stack(record):
        if record["measured"]:
            for moment, reads in (("before", 7), ("after", 7 + 50 * record["measured"]["seconds"])):
                record["counters"][moment]["lower_device"] = {"reads": reads}

    claim = {"response": "lower_device_reads_per_second", "unit": "1/s", "published": 50}
    assert judged(tmp_path, stack, **claim).measured == pytest.approx(50)
    assert judged(tmp_path / "one disk", **claim).verdict == "no_data"


def test_idle_disks_are_told_from_the_machines_reads(tmp_path):
    def reads(other_kib):
        def change(record):
            if record["measured"]:
                before, after = (record["counters"][m] for m in ("before", "after"))
                before["host"]["vmstat"]["pgpgin"] = before["device"]["sectors_read"] = 0
                after["device"]["sectors_read"] = 2000
                after["host"]["vmstat"]["pgpgin"] = 1000 + other_kib
                record["measured"] = None

        return change

    claim = {"response": "other_disks_read_fraction", "unit": "fraction", "rule": "at_most"}
    claim["published"] = 0.01
    assert judged(tmp_path / "idle", reads(5), **claim).verdict == "held"
    result = judged(tmp_path / "busy", reads(1000), **claim)
    assert (result.verdict, result.measured) == ("not_held", 0.5)


SLOPE = (1.0, 1.3, 1.7, 2.1, 2.6, 3.2)


def drifting(factor=1.1, killed=()):
    """Slow the host down from block to block; `random` takes `factor` as long as `sequential`."""

    def change(record):
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


def ordered(tmp_path, change, **claim):
    definition = copy.deepcopy(DEFINITION)
    table = {**CLAIM, "rule": "ordering", "published": "greater", "tolerance_factor": 1.2, **claim}
    definition["claims"], definition["findings"] = [table], []
    folder = build_run(tmp_path / "run", change, definition=definition, repeats=len(SLOPE))
    return evaluate_claims(load_run(folder))[0]


def test_sides_of_one_run_are_compared_within_blocks(tmp_path):
    found = ordered(tmp_path, drifting(), where=RANDOM, over=UNLOADED)
    assert (found.n, found.kind, found.low > 1.1, found.high < 1.11) == (6, "94 %", True, True)
    assert found.measured == pytest.approx(1.1035)


def test_a_block_without_one_side_is_left_out(tmp_path):
    found = ordered(tmp_path, drifting(killed=[2]), where=RANDOM, over=UNLOADED)
    assert (found.n, found.kind) == (5, "94 %")
    assert found.low == pytest.approx(1.101)
    few = ordered(tmp_path / "few", drifting(killed=[2, 3]), where=RANDOM, over=UNLOADED)
    assert (few.n, few.kind) == (4, "range")


def test_trials_match_by_the_levels_that_a_claim_leaves_open(tmp_path):
    """The cages differ fourfold, and each of their trials is compared with its own."""
    where, over = {"source": "unloaded", "pattern": "random"}, {"source": "unloaded"}
    found = ordered(tmp_path, drifting(), where=where, over={**over, "pattern": "sequential"})
    assert (found.n, found.measured) == (12, pytest.approx(1.1035))
    assert found.high < 1.11


def test_two_ratios_are_compared_within_blocks(tmp_path):
    tenth = {"cage": "tenth"}
    found = ordered(
        tmp_path,
        drifting(),
        rule="ordering_of_ratios",
        where=RANDOM,
        over=UNLOADED,
        than={**UNLOADED, **tenth},
        than_over=UNLOADED,
    )
    assert (found.n, found.kind) == (6, "94 %")
    assert found.measured == pytest.approx(4 * 1.1035)


LEVELS = ["1", "512", "1024", "8192"]
KNEE = {
    "response": "full_pass_seconds",
    "along": "block",
    "tolerance_factor": 2.0,
}


def knee(*seconds: float | None, published: int = 1024) -> tuple[Any, Any]:
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


def test_a_knee_is_the_level_from_which_on_nothing_is_gained() -> None:
    summary, (held, reason) = knee(80, 8, 4, 3.9)
    assert (summary.middle, held) == (1024, True)
    assert "above 1,024" in reason


@pytest.mark.parametrize("seconds", [(4, 4, 4, 4), (5, 4, 4, 4), (80, 40, 20, 10)])
def test_equal_times_or_falling_ones_have_no_knee(seconds: tuple[float, ...]) -> None:
    summary, (held, reason) = knee(*seconds)
    assert (summary, held) == (None, False)
    assert "there is no knee" in reason


def test_a_knee_elsewhere_does_not_hold() -> None:
    summary, (held, _) = knee(80, 8, 8, 8, published=8192)
    assert (summary.middle, held) == (512, False)


def test_a_level_without_a_figure_leaves_it_undecided() -> None:
    assert knee(80, None, 4, 4) == (None, (None, "no figure for block 512"))


def test_lines_of_a_function_are_counted_without_comments() -> None:
    claim = {"published": 10, "tolerance_factor": 2.0}
    lines, (held, _) = evaluate_source_lines(
        {**claim, "key": "workloads/java/Segment.java: long valueAt("}
    )
    assert (lines, held) == (3, False)
    nothing = {**claim, "key": "workloads/java/Segment.java: long nosuch("}
    assert evaluate_source_lines(nothing)[0] is None


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
    other: dict[str, Any] = {**run.plan, "trials": trials}
    found = of(replace(run, plan=other), cage="uncaged", source="heap", pattern="sequential")
    assert found == ("31.5 s °", "")


def test_a_time_of_all_records_is_given_per_call(tmp_path: Path) -> None:
    run = load_run(unpacked("append-log", tmp_path / "run"))
    found = of(run, bytes="128", procs="4", method="writev")
    assert found == ("17.5 us °", "0.94 us")  # 69.8 ms for 4,000 records, as the article divides
    assert of(run, method="direct-misaligned")[0] == ""


def test_responses_that_do_not_grow_with_the_work_have_no_such_column() -> None:
    assert [per_unit_heading(name) for name in ("full_pass_seconds", "append_seconds")] == [
        "per GiB",
        "per call",
    ]
    assert {
        per_unit_heading(name) for name in ("gap_max_us", "stalled_seconds", "amplification")
    } == {None}


def test_the_table_has_the_figure_below_the_measured_time(run: Run) -> None:
    detail = main_table(run).rows[0][2].detail
    assert detail.splitlines()[-1] == "per GiB 0.984 s ° (0.14 s)"
