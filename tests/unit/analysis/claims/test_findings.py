"""The answer: an experiment's own sentences, each with its figure or with why it has none."""

from __future__ import annotations

from analysis.claims.findings import find
from analysis.data.frames import trial_frame
from analysis.data.load import load_run
from analysis.figures import curves, style
from analysis.figures.latencies import latency_figures, latency_frame, percentiles
from analysis.figures.style import looks, numeric_factor
from analysis.formatting import quantity, span
from analysis.views import narrative
from tests.builders.swept_runs import swept
from tests.fixtures.records import outer
from tests.fixtures.runs import DEFINITION, build_run

CAGED = {"cage": "tenth", "source": "unloaded", "pattern": "random"}
FREE = {**CAGED, "cage": "uncaged"}


def found(tmp_path, table, change=None):
    definition = {**DEFINITION, "findings": [{"question": "Q24", "says": "It is {value} of it.", **table}]}
    run = load_run(build_run(tmp_path / "run", change, definition=definition))
    return find(run)[0], run


def test_a_figure_stands_in_its_sentence_with_unit_interval_and_number(tmp_path):
    finding, _ = found(tmp_path, {"response": "amplification", "where": CAGED})
    assert finding.sentence == "It is 28.4× (28.4 – 28.4×, n 3) of it."
    assert (round(finding.middle, 1), finding.n) == (28.4, 3)
    assert "extrapolated" not in finding.note


def test_two_sides_are_a_ratio_and_what_limits_it_is_told(tmp_path):
    finding, _ = found(tmp_path, {"response": "full_pass_seconds", "where": CAGED, "over": FREE})
    assert finding.value.startswith("23")
    assert "emulated CPU" in finding.note
    assert "extrapolated" in finding.note


def test_a_sentence_that_says_times_itself_has_no_sign_for_it(tmp_path):
    table = {"says": "It takes {value} times as long.", "response": "amplification", "where": CAGED, "over": FREE}
    assert found(tmp_path, table)[0].sentence == "It takes 28.4 (28.4 – 28.4, n 3) times as long."


def test_what_was_not_measured_says_why(tmp_path):
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
    """Somebody else kept the CPU around the guest busy."""
    if record["treatment"] == CAGED:
        record["outer_host"] = {"before": outer(0.0), "after": outer(record["measured"]["seconds"], others=9.0)}


def test_flags_that_a_kernel_passes_do_not_depend_on_who_else_runs(tmp_path):
    flags, run = found(tmp_path, {"response": "vm_flags", "where": CAGED}, disturbed)
    assert not any(trial.is_included for trial in run.trials if dict(trial.record.treatment) == CAGED)
    assert "READ" in flags.value
    assert flags.is_proven


def test_a_host_that_lacks_something_is_named(tmp_path):
    def lacks(record):
        if record["treatment"] == CAGED:
            record["outcome"], record["response"] = "requirement_missed", {}
            record["missed_requirements"] = [{"requirement": "io_uring", "reason": "the kernel <refuses> io_uring"}]

    finding, run = found(tmp_path, {"response": "amplification", "where": CAGED}, lacks)
    assert finding.note == "the host lacks what it needs: the kernel <refuses> io_uring"
    assert "could not run 3 of 36 trials" in narrative.notices(run)
    assert "the kernel &lt;refuses&gt; io_uring<small>tenth · unloaded · random</small>" in narrative.notices(run)
    assert "Unfinished" not in narrative.notices(run)


def test_outcomes_and_what_the_kernel_did_are_words(tmp_path):
    killed, _ = found(tmp_path / "a", {"response": "outcome", "where": {"cage": "tenth", "source": "heap"}})
    assert killed.value == "killed 6 of 6 times"
    flags, _ = found(tmp_path / "b", {"response": "vm_flags", "where": CAGED})
    assert "READ" in flags.value


def test_an_experiment_without_findings_has_no_answer(tmp_path):
    assert narrative.answer_html(load_run(build_run(tmp_path / "run"))) == ""


def test_small_times_and_ratios_are_written_as_people_read_them():
    assert quantity("heartbeat_p999_us", 2500) == "2.5 ms"
    assert quantity("heartbeat_p50_us", 52) == "52 us"
    assert quantity("read_seconds", 0.0312) == "31.2 ms"
    assert quantity("read_seconds", 0) == "0 s"
    assert quantity("resident_pages", 1234) == "1,234 pages"
    assert span("28×", "35×") == "28 – 35×"


def test_percentiles_are_found_by_their_names_with_the_share_that_is_slower():
    told = percentiles(["fio_p50_us", "fio_p999_us", "beat_p99_us", "read_seconds", "x_max_us"])
    assert list(told) == ["fio_us"]
    assert {name: round(share, 6) for name, share in told["fio_us"].items()} == {
        "fio_p50_us": 0.5,
        "fio_p999_us": 0.001,
    }


def test_a_factor_of_numbers_has_a_curve_and_others_have_none(tmp_path):
    plain = load_run(build_run(tmp_path / "plain"))
    assert curves.curve_figure(plain, trial_frame(plain), "full_pass_seconds", looks(plain)) is None
    run = swept(tmp_path)
    assert numeric_factor(run) == ("pattern", {"4KiB": 4096.0, "64KiB": 65536.0})
    axes = curves.curve_figure(run, trial_frame(run), "full_pass_seconds", looks(run)).axes[0]
    assert {line.get_label() for line in axes.lines} == {
        "uncaged · heap", "uncaged · resident", "uncaged · unloaded", "tenth · resident", "tenth · unloaded",
    }  # fmt: skip
    assert all(list(line.get_xdata()) == [4096.0, 65536.0] for line in axes.lines)


def test_latencies_have_a_figure_where_there_are_percentiles(tmp_path):
    plain = load_run(build_run(tmp_path / "plain"))
    assert latency_figures(trial_frame(plain), latency_frame(plain), looks(plain)) == {}
    run = swept(tmp_path)
    drawn = latency_figures(trial_frame(run), latency_frame(run), looks(run))
    assert list(drawn) == ["beat"]
    assert [round(y) for y in drawn["beat"].axes[0].lines[0].get_ydata()] == [60, 400, 2000]


def test_too_many_lines_are_coloured_by_the_factor_that_tells_most(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "MOST_GROUPS", 3)
    run = swept(tmp_path)
    axes = curves.curve_figure(run, trial_frame(run), "full_pass_seconds", looks(run)).axes[0]
    assert {line.get_label() for line in axes.lines} == {"source heap", "source resident", "source unloaded"}
