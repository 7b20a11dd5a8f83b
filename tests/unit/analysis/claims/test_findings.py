"""Tests of findings: sentences with figures, or with the reason for having none."""

from __future__ import annotations

from analysis.articles.findings import evaluate_findings
from analysis.data.frames import trial_frame
from analysis.data.load import load_run
from analysis.figures import charts, style
from analysis.figures.latencies import latency_figures, latency_frame, percentile_responses
from analysis.figures.style import numeric_factor, treatment_styles
from analysis.formatting import format_quantity, format_range
from analysis.views import narrative
from tests.builders.swept_runs import swept
from tests.fixtures.records import outer
from tests.fixtures.runs import DEFINITION, build_run

CAGED = {"cage": "tenth", "source": "unloaded", "pattern": "random"}
FREE = {**CAGED, "cage": "uncaged"}


def found(tmp_path, table, change=None):
    definition = {
        **DEFINITION,
        "findings": [{"question": "Q24", "says": "It is {value} of it.", **table}],
    }
    run = load_run(build_run(tmp_path / "run", change, definition=definition))
    return evaluate_findings(run)[0], run


def test_a_figure_stands_in_its_sentence_with_unit_interval_and_number(tmp_path):
    finding, _ = found(tmp_path, {"response": "amplification", "where": CAGED})
    assert finding.sentence == "It is 28.4× (28.4 – 28.4×, n 3) of it."
    assert (round(finding.middle, 1), finding.n) == (28.4, 3)
    assert "extrapolated" not in finding.note


def test_two_sides_are_a_ratio_with_its_limitations(tmp_path):
    finding, _ = found(tmp_path, {"response": "full_pass_seconds", "where": CAGED, "over": FREE})
    assert finding.value.startswith("23")
    assert "emulated CPU" in finding.note
    assert "extrapolated" in finding.note


def test_a_sentence_with_the_word_times_has_no_multiplication_sign(tmp_path):
    table = {
        "says": "It takes {value} times as long.",
        "response": "amplification",
        "where": CAGED,
        "over": FREE,
    }
    assert found(tmp_path, table)[0].sentence == "It takes 28.4 (28.4 – 28.4, n 3) times as long."


def test_a_finding_without_a_figure_states_the_reason(tmp_path):
    finding, run = found(tmp_path, {"response": "heartbeat_p999_us", "where": CAGED})
    assert (finding.value, finding.sentence) == (None, "It is … of it.")
    assert finding.note == "no trial of it has a figure"
    assert "Not measured: no trial of it has a figure." in narrative.answer_html(run)
    assert (
        found(tmp_path / "b", {"response": "x", "where": {"cage": "gone"}})[0].note
        == "size emulated leaves its treatment out"
    )


def test_a_figure_of_excluded_trials_alone_stands_in_brackets_and_proves_nothing(tmp_path):
    def warm(record):
        if record["treatment"] == CAGED:
            record["cache"]["resident_bytes_before"] = 4096

    finding, _ = found(tmp_path, {"response": "amplification", "where": CAGED}, warm)
    assert finding.value == "(28.4× (28.4 – 28.4×, n 3)) †"
    assert not finding.is_proven
    assert "excluded trials alone" in finding.note
    flags, _ = found(tmp_path / "flags", {"response": "vm_flags", "where": CAGED}, warm)
    assert flags.value is None


def disturbed(record):
    """Change a record as if another process had kept the CPU around the guest busy."""
    if record["treatment"] == CAGED:
        record["outer_host"] = {
            "before": outer(0.0),
            "after": outer(record["measured"]["seconds"], others=9.0),
        }


def test_flags_that_a_kernel_passes_do_not_depend_on_host_noise(tmp_path):
    flags, run = found(tmp_path, {"response": "vm_flags", "where": CAGED}, disturbed)
    assert not any(
        trial.is_included for trial in run.trials if dict(trial.record.treatment) == CAGED
    )
    assert "READ" in flags.value
    assert flags.is_proven


def test_a_host_that_lacks_something_is_named(tmp_path):
    def lacks(record):
        if record["treatment"] == CAGED:
            record["outcome"], record["response"] = "requirement_missed", {}
            record["missed_requirements"] = [
                {"requirement": "io_uring", "reason": "the kernel <refuses> io_uring"}
            ]

    finding, run = found(tmp_path, {"response": "amplification", "where": CAGED}, lacks)
    assert finding.note == "the host lacks a requirement: the kernel <refuses> io_uring"
    assert "could not run 3 of 36 trials" in narrative.notices_html(run)
    assert (
        "the kernel &lt;refuses&gt; io_uring<small>tenth · unloaded · random</small>"
        in narrative.notices_html(run)
    )
    assert "Unfinished" not in narrative.notices_html(run)


def test_outcomes_and_what_the_kernel_did_are_words(tmp_path):
    killed, _ = found(
        tmp_path / "a", {"response": "outcome", "where": {"cage": "tenth", "source": "heap"}}
    )
    assert killed.value == "killed 6 of 6 times"
    flags, _ = found(tmp_path / "b", {"response": "vm_flags", "where": CAGED})
    assert "READ" in flags.value


def test_an_experiment_without_findings_has_no_answer(tmp_path):
    assert narrative.answer_html(load_run(build_run(tmp_path / "run"))) == ""


def test_small_times_and_ratios_are_formatted_readably():
    assert format_quantity("heartbeat_p999_us", 2500) == "2.5 ms"
    assert format_quantity("heartbeat_p50_us", 52) == "52 us"
    assert format_quantity("read_seconds", 0.0312) == "31.2 ms"
    assert format_quantity("read_seconds", 0) == "0 s"
    assert format_quantity("resident_pages", 1234) == "1,234 pages"
    assert format_range("28×", "35×") == "28 – 35×"


def test_percentiles_are_found_by_their_names_with_the_share_that_is_slower():
    found = percentile_responses(
        ["fio_p50_us", "fio_p999_us", "beat_p99_us", "read_seconds", "x_max_us"]
    )
    assert list(found) == ["fio_us"]
    assert {name: round(share, 6) for name, share in found["fio_us"].items()} == {
        "fio_p50_us": 0.5,
        "fio_p999_us": 0.001,
    }


def test_only_a_numeric_factor_has_a_curve(tmp_path):
    plain = load_run(build_run(tmp_path / "plain"))
    assert (
        charts.curve_figure(plain, trial_frame(plain), "full_pass_seconds", treatment_styles(plain))
        is None
    )
    run = swept(tmp_path)
    assert numeric_factor(run) == ("pattern", {"4KiB": 4096.0, "64KiB": 65536.0})
    axes = charts.curve_figure(
        run, trial_frame(run), "full_pass_seconds", treatment_styles(run)
    ).axes[0]
    assert {line.get_label() for line in axes.lines} == {
        "uncaged · heap",
        "uncaged · resident",
        "uncaged · unloaded",
        "tenth · resident",
        "tenth · unloaded",
    }
    assert all(list(line.get_xdata()) == [4096.0, 65536.0] for line in axes.lines)


def test_latencies_have_a_figure_where_there_are_percentiles(tmp_path):
    plain = load_run(build_run(tmp_path / "plain"))
    assert latency_figures(trial_frame(plain), latency_frame(plain), treatment_styles(plain)) == {}
    run = swept(tmp_path)
    drawn = latency_figures(trial_frame(run), latency_frame(run), treatment_styles(run))
    assert list(drawn) == ["beat"]
    assert [round(y) for y in drawn["beat"].axes[0].lines[0].get_ydata()] == [60, 400, 2000]


def test_too_many_lines_are_coloured_by_the_factor_that_explains_most(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "MOST_GROUPS", 3)
    run = swept(tmp_path)
    axes = charts.curve_figure(
        run, trial_frame(run), "full_pass_seconds", treatment_styles(run)
    ).axes[0]
    assert {line.get_label() for line in axes.lines} == {
        "source heap",
        "source resident",
        "source unloaded",
    }
