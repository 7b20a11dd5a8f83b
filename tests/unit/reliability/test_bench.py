"""The benchmark: its parts, its interval, and a small run of each bench of the harness's cost."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.data.load import load_run
from pagecage.errors import PagecageError
from pagecage.model.record import Record, append_record
from pagecage.model.trial import COLLECTORS
from reliability.bench import fleet_growth, growth, observers, peers
from reliability.bench.__main__ import main, measure, time_left
from reliability.bench.bed import Figure, Results, Session, ratio_of_pairs
from reliability.bench.parts import PARTS, Part, chosen, listed
from reliability.bench.peers import differences
from reliability.bench.render import TREATMENTS, make_run
from reliability.bench.start import Timed, figures
from tests.fixtures.records import make_record

FIGURE = Figure("ours / theirs", 1.0, 0.9, 1.1, "1 or more", True, 3, "something")


def part(name: str, *ends: Callable[[], None], left_out: bool = False) -> Part:
    """A part with a figure before each thing that happens to it."""

    def figures(_: Session) -> Iterator[Figure]:
        for end in ends:
            yield FIGURE
            end()

    return Part(name, "about", 2.0, figures, left_out)


def interrupt() -> None:
    raise KeyboardInterrupt


def fail() -> None:
    raise PagecageError("the host has gone", "bring it back", 3)


def go_on() -> None:
    pass


def kept(path: Path) -> dict[str, tuple[int, bool]]:
    parts = json.loads(path.read_text())["parts"]
    return {name: (len(entry["figures"]), entry["complete"]) for name, entry in parts.items()}


def test_all_parts_but_those_that_must_be_named() -> None:
    names = [part.name for part in chosen(())]
    assert {"caps", "start", "report"} <= set(names)
    assert not {"guest-log", "clone"} & set(names)
    assert sum(part.minutes for part in chosen(())) <= 17, "the Makefile says so"


def test_parts_by_name_come_in_their_own_order() -> None:
    assert [part.name for part in chosen(("clone", "caps"))] == ["caps", "clone"]


def test_an_unknown_part_is_answered_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main("auto", ["cpas"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    says = "pagecage: there is no part 'cpas' of the benchmark\n  fix: did you mean \"caps\"?\n"
    assert told.err.startswith(says)
    assert list(listed()) == told.err.splitlines()[3:]
    assert all(part.name in told.err for part in PARTS)


def test_an_interruption_keeps_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Results(tmp_path / "bench.json")
    parts = (part("first", go_on), part("second", go_on, interrupt), part("third", go_on))
    assert measure(parts, Session("auto"), results) == 130
    assert kept(tmp_path / "bench.json") == {"first": (1, True), "second": (2, False)}
    told = capsys.readouterr()
    assert told.err.splitlines()[-1] == "interrupted: 3 figures are kept in build/bench.json"
    assert told.out.count("ours / theirs") == 3


def test_a_failure_keeps_what_was_measured_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measure((part("first", fail),), Session("auto"), Results(tmp_path / "bench.json")) == 3
    assert kept(tmp_path / "bench.json") == {"first": (1, False)}
    assert "the host has gone\n  fix: bring it back" in capsys.readouterr().err


def test_a_part_that_is_measured_again_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    both = (part("first", go_on, go_on), part("second", go_on))
    for parts in (both, (part("first", go_on),)):
        assert measure(parts, Session("auto"), Results(path)) == 0
    assert kept(path) == {"first": (1, True), "second": (1, True)}


@pytest.mark.parametrize("text", ["", "[]", '{"host": "vm", "figures": []}'])
def test_results_of_another_form_are_written_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "bench.json").write_text(text)
    assert measure((part("first", go_on),), Session("auto"), Results(tmp_path / "bench.json")) == 0
    assert kept(tmp_path / "bench.json") == {"first": (1, True)}


def test_the_time_left_goes_by_what_the_parts_took(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    parts = (part("first"), part("second"), part("third"))
    assert time_left((), parts, 0.0) == 6.0
    assert time_left(parts[:1], parts[1:], 60.0) == 2.0
    assert time_left(parts[:2], parts[2:], 480.0) == 4.0
    measure(parts, Session("auto"), Results(tmp_path / "bench.json"))
    assert "--- first: about (part 1 of 3; about 6 min left)" in capsys.readouterr().err


@pytest.mark.parametrize(("count", "left_out"), [(5, 0), (6, 0), (9, 1), (12, 2), (15, 3), (20, 5)])
def test_interval_leaves_out_as_many_as_the_binomial_distribution_says(
    count: int, left_out: int
) -> None:
    ratios = [1.0 + n for n in range(count)]
    _, low, high = ratio_of_pairs(ratios, [1.0] * count)
    assert (low, high) == (ratios[left_out], ratios[-1 - left_out])


@pytest.mark.parametrize("blocks", [1, 2])
def test_the_run_that_reports_are_timed_on_is_a_run(tmp_path: Path, blocks: int) -> None:
    run = load_run(make_run(tmp_path / "run", blocks * TREATMENTS, 50 * blocks * TREATMENTS))
    assert [trial.is_included for trial in run.trials] == [True] * blocks * TREATMENTS
    assert sum(len(trial.series.t) for trial in run.trials) == 50 * blocks * TREATMENTS
    assert {trial.verdicts.cache_state_reached.verdict for trial in run.trials} == {"reached"}


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=40))
def test_median_lies_inside(ratios: list[float]) -> None:
    middle, low, high = ratio_of_pairs(ratios, [1.0] * len(ratios))
    assert low <= middle <= high


def test_interval_holds_the_median_in_about_95_of_100_cases() -> None:
    draw = random.Random(1)
    held = 0
    for _ in range(1000):
        _, low, high = ratio_of_pairs([draw.lognormvariate(0, 0.3) for _ in range(15)], [1.0] * 15)
        held += low <= 1.0 <= high
    assert 940 <= held <= 985


def test_trials_and_peers_take_turns() -> None:
    names = [name for name, _ in peers.steps({"a": ["a"], "b": ["b"]}, 2, "/x")]
    assert names == ["one", "first", "a", "b", "a", "b", "a", "b", "second"]


def records_at(path: Path, starts: list[float]) -> Path:
    for number, start in enumerate(starts):
        phase = {"name": "run", "start_wall_seconds": start, "start_monotonic_seconds": start}
        phases = [{**phase, "seconds": 0.5}]
        append_record(path, make_record(trial_id=f"t{number}", outcome="ok", phases=phases))
    return path


def test_a_trial_costs_what_several_add(tmp_path: Path) -> None:
    def row(name: str, seconds: float, cpu: float) -> dict[str, Any]:
        return {"name": name, "seconds": seconds, "cpu_seconds": cpu, "most_bytes": 7}

    rows = [row("one", 9, 1.0), row("first", 9, 3.0), row("second", 9, 4.0)]
    rows += [row("a", 50, 9), row("a", 1, 0.1), row("a", 3, 0.3)]
    first = records_at(tmp_path / "first.jsonl", [0, 1, 3])
    second = records_at(tmp_path / "second.jsonl", [0, 4])
    found = peers.costs_of("m", rows, [first, second])
    assert list(found.trial.seconds) == [1.0, 2.0, 4.0]
    assert found.trial.cpu_seconds == pytest.approx((3.0 + 4.0 - 2.0) / 3)
    assert list(found.peers["a"].seconds) == [1, 3], "the first round is not counted"
    assert found.peers["a"].cpu_seconds == pytest.approx(0.2)
    assert found.phases == {"run": 0.5}


def test_moments_that_follow_each_other() -> None:
    assert differences([1.0, 3.0, 6.0]) == [2.0, 3.0]


def test_every_set_of_collectors_takes_turns_with_none_on_a_machine_state_of_its_own() -> None:
    plan = observers.plan_of_reading(observers.IN_GUEST, 2, "systemd-scope")
    blocks: dict[int, list[tuple[str, str]]] = {}
    for trial in plan.trials:
        shown = trial.treatment["reader"], trial.treatment["collectors"]
        blocks.setdefault(trial.block, []).append(shown)
    assert len({trial.trial_id for trial in plan.trials}) == len(plan.trials)
    names = [*observers.IN_GUEST, "all"]
    sets = [("cold", name) for name in names]
    sets += [("resident", name) for name in (*names, "busy")]
    found = [[one for one in turns if one[1] != "none"] for turns in blocks.values()]
    assert [turns[0] for turns in found] == sets * 2
    assert {*names} == {"all", *set(COLLECTORS) - {"perf-mem"}}
    turns = [collectors for _, collectors in blocks[1]]
    assert turns == ["none", "iostat", "iostat", "none", "none", "iostat"]
    turns = [collectors for _, collectors in blocks[1 + len(sets)]]
    assert turns == ["iostat", "none", "none", "iostat", "iostat", "none"]
    assert blocks[len(sets)] == [("resident", "busy")] * 3


def test_each_reader_starts_from_its_own_cache_state() -> None:
    plan = observers.plan_of_reading(("sar",), 1, "systemd-scope")
    states = {(trial.treatment["reader"], trial.cache) for trial in plan.trials}
    assert {("cold", "cold"), ("resident", "warm")} <= states


def test_the_controller_is_measured_on_a_whole_run() -> None:
    found = growth.run_plan(growth.BLOCK, "block")
    assert (found.trials, found.fresh) == (growth.BLOCK, "block")
    assert found.run_seconds > 0
    assert found.resume_seconds > 0


def test_a_fleet_is_measured_on_every_host() -> None:
    found = fleet_growth.in_child(2)
    assert (found.hosts, found.trials) == (2, 2 * growth.BLOCK)


def record(number: int, start: float, measured: float, **phases: float) -> Record:
    """A trial whose phases follow each other."""
    rows, now = [], start
    for name, seconds in phases.items():
        rows.append(
            {
                "name": name,
                "start_wall_seconds": now,
                "start_monotonic_seconds": now,
                "seconds": seconds,
            }
        )
        now += seconds
    times = {"start_wall_seconds": start, "start_monotonic_seconds": start, "seconds": measured}
    return make_record(trial_id=f"t{number}", phases=rows, measured=times)


def command(began: float) -> Timed:
    first = record(1, began + 4.0, 0.2, calibrate=3.0, slice=0.3, run=0.5, stop=0.4)
    second = record(2, began + 9.0, 1.0, calibrate=0.0, slice=0.1, run=1.2, stop=0.6)
    lines = ((began + 0.5, "4 trials to run"), (began + 1.0, "starting the host ..."))
    return Timed(began, lines, began + 20.0, (first, second))


def test_the_times_from_the_key_press() -> None:
    first, report, _ = figures([command(100.0), command(500.0)])
    assert (first.name, first.ratio, first.met) == ("seconds to the first trial", 4.0, True)
    assert "1.0 s until the host is started" in first.says
    assert (report.ratio, report.met, report.samples) == (20.0, True, 2)
    assert "9.1 s after the last trial" in report.says


def test_the_pause_is_what_neither_the_workload_nor_what_is_done_once_takes() -> None:
    *_, pause = figures([command(100.0)])
    assert pause.ratio == pytest.approx(9.0 - 4.0 - 0.2 - 3.0)
    assert pause.met is False
    assert pause.says == "beyond the workload; stop 0.50 s, run 0.25 s, slice 0.20 s"


def test_a_command_that_says_nothing_of_a_host_is_no_figure() -> None:
    silent = Timed(0.0, (), 1.0, command(0.0).records)
    with pytest.raises(PagecageError, match="never said 'starting the host'"):
        list(figures([silent]))
