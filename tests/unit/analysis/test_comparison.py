"""Tests of comparisons: differences, incompatibilities, noise floor and gates."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import comparison
from analysis.cells import NoiseFloor, identical_treatments, noise_floor, noise_of
from analysis.comparison import Comparison, change_word, compare, judge, load_runs
from analysis.data.load import Treatment, load_run
from analysis.stats import MedianSummary, evaluate_gate, parse_gate
from pagecage.errors import PagecageError
from pagecage.model.json_codec import Json
from tests.builders.command_line import called
from tests.builders.pages import loads_of
from tests.builders.record_changes import seconds, updated, warm, where
from tests.builders.run_edits import edit
from tests.builders.timed_runs import COLD, times
from tests.fixtures.runs import DEFINITION, build_run

FACTS = "facts/b-1.json"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs: `a`, `again` (equal), `slow` (30 % slower) and `few` (three repeats, not eight)."""
    top = tmp_path_factory.mktemp("runs")
    for name, factor, seed, repeats in (
        ("a", 1, 1, 8),
        ("again", 1, 2, 8),
        ("slow", 1.3, 3, 8),
        ("few", 1.3, 4, 3),
    ):
        build_run(top / name, times(factor, seed), repeats=repeats)
    return top


def change_of(compared: Comparison, treatment: Treatment = COLD) -> comparison.Change:
    [change] = [
        row.changes[0]
        for row in compared.rows
        if (row.treatment, row.response) == (treatment, "full_pass_seconds")
    ]
    return change


def changes_of(compared: Comparison) -> list[tuple[comparison.Change, MedianSummary]]:
    """Return the changes that have a ratio, with it."""
    changes = (change for row in compared.rows for change in row.changes)
    return [(change, change.ratio) for change in changes if change.ratio]


def test_a_slower_run_is_higher_in_every_treatment(folders: Path) -> None:
    compared = compare(load_runs([folders / "a", folders / "slow"]))
    changes = changes_of(compared)
    assert len(changes) == 10  # two of twelve are killed in both runs
    assert {change.word for change, _ in changes} == {"higher"}
    assert all(ratio.low < 1.3 < ratio.high or 1.2 < ratio.middle < 1.4 for _, ratio in changes)
    [whole] = compared.overall["full_pass_seconds"]
    assert whole is not None
    assert 1.28 < whole.low < whole.middle < whole.high < 1.32
    assert whole.kind == "95 %"


def test_an_equal_run_is_inconclusive(folders: Path) -> None:
    compared = compare(load_runs([folders / "a", folders / "again"]))
    changes = changes_of(compared)
    assert {change.word for change, _ in changes} == {"inconclusive"}
    assert compared.differences == ()
    assert {change.floor for change, _ in changes} == {None}, "no A/A pair shows one"


@pytest.mark.parametrize(
    ("times_of_b", "word"), [((1.21, 1.3, 1.4), "inconclusive"), ((1.25, 1.35, 1.4), "higher")]
)
def test_a_change_below_the_noise_floor_is_inconclusive(
    tmp_path: Path, times_of_b: tuple[float, ...], word: str
) -> None:
    """All of B exceed all of A, whose own range is 1 to 1.2."""
    sides = {"a": (1.0, 1.1, 1.2), "b": times_of_b}
    runs = [build_run(tmp_path / name, seconds(*times)) for name, times in sides.items()]
    change = change_of(compare(load_runs(runs)))
    assert change.ratio is not None
    assert change.ratio.low > 1
    assert change.floor is not None
    assert change.floor.share == pytest.approx(0.2)
    assert change.floor.kind == "range"
    assert change.word == word


@pytest.mark.parametrize(
    ("share", "ends", "word"),
    [
        (0.05, (1.05, 1.15), "higher"),
        (0.12, (1.05, 1.15), "inconclusive"),
        (0.05, (0.99, 1.2), "inconclusive"),
        (0.05, (0.85, 0.95), "lower"),
        (0.12, (0.85, 0.95), "inconclusive"),
    ],
)
def test_a_word_needs_both_the_interval_and_the_floor(
    share: float, ends: tuple[float, float], word: str
) -> None:
    ratio, floor = MedianSummary(9, sum(ends) / 2, *ends, "95 %"), NoiseFloor(share, "a_a_pair")
    assert change_word(ratio, floor) == word
    assert change_word(replace(ratio, n=2, kind="range"), floor) == "too few trials"


def test_both_killed_is_no_change_and_one_killed_says_so(folders: Path, tmp_path: Path) -> None:
    killed = where(COLD, updated(outcome="oom_killed", response={}, measured=None))
    runs = load_runs([folders / "few", build_run(tmp_path / "b", killed)])
    compared = compare(runs, [parse_gate("full_pass_seconds > +900%")])
    assert change_of(compared).word == "killed in B"
    heap = {"cage": "tenth", "source": "heap", "pattern": "random"}
    assert change_of(compared, heap).word == "killed in A and B"
    judged = {tuple(j.treatment.values()): j.verdict for j in compared.gate_results}
    assert judged[tuple(COLD.values())] == "undecided"
    assert tuple(heap.values()) not in judged


def change_trials(folder: Path, **changes: Json) -> None:
    edit(folder / "plan.json", lambda plan: [trial.update(changes) for trial in plan["trials"]])


OTHERS: dict[str, Callable[[Path], object]] = {
    "experiment": lambda folder: build_run(folder, experiment="another"),
    "kernel": lambda folder: (build_run(folder) / FACTS).write_text('{"kernel": "6.18.0"}'),
    "emulation": lambda folder: build_run(folder, lambda record: record.update(emulated=False)),
    "dataset": lambda folder: change_trials(build_run(folder), dataset={"size_bytes": 7}),
    "program": lambda folder: change_trials(build_run(folder), workload={"program": "pcscan"}),
}


@pytest.mark.parametrize("what", OTHERS)
def test_incomparable_runs_are_refused_and_named_with_anyway(
    folders: Path, tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    OTHERS[what](other)
    with pytest.raises(PagecageError, match=f"not comparable: {what}") as refused:
        compare(load_runs([folders / "few", other]))
    assert "--anyway" in refused.value.hint
    compared = compare(load_runs([folders / "few", other]), anyway=True)
    assert [one.what for one in compared.obstacles] == [what]
    assert called(["compare", folders / "few", other, "--anyway"]) == 0
    assert f"compared anyway, {what}:" in capsys.readouterr().out


def test_what_differs_is_listed(folders: Path, tmp_path: Path) -> None:
    def larger(record: Json) -> None:
        record["cage"]["requested"] = {"MemoryMax": 67108864}
        record["cage"]["read_back"] = {"memory.max": "67108864"}

    harness = {"version": "9.9", "git_revision": "fedc", "git_dirty": False}
    other = build_run(tmp_path / "other", larger, harness=harness)
    edit(other / FACTS, lambda facts: facts.update(cpus=4))
    compared = compare(load_runs([folders / "few", other]))
    differences = {one.name: one.values for one in compared.differences}
    assert differences["pagecage version"] == ("0.1.0", "9.9")
    assert differences["cpus"] == ("2", "4")
    assert differences["cage of tenth · heap · random"] == (
        "MemoryMax=13418496 MemorySwapMax=0",
        "MemoryMax=67108864",
    )
    assert not any("boot" in name for name in differences)


def test_excluded_trials_are_included_by_name_alone(folders: Path, tmp_path: Path) -> None:
    other = build_run(tmp_path / "other", where(COLD, warm))
    ids = [t.record.trial_id for t in load_run(other).trials if t.verdicts.excluded]
    assert len(ids) == 3
    sides = [folders / "few", other]
    assert change_of(compare(load_runs(sides))).word == "excluded in B"
    included = change_of(compare(load_runs(sides, [ids[0], f"B:{ids[1]}"])))
    assert included.ratio is not None
    assert included.ratio.n == 2
    for wrong in ("r9_nothing", f"A:{ids[0]}", f"C:{ids[0]}", "C:host_quiet", ""):
        with pytest.raises(PagecageError, match="not an excluded trial"):
            load_runs(sides, [wrong])


def test_a_gate_in_ci_may_include_what_a_loaded_host_excludes(
    folders: Path, tmp_path: Path
) -> None:
    def loaded(record: Json) -> None:
        if record["counters"].get("after"):
            record["counters"]["after"]["device"]["sectors_written"] += 40_000

    words = ["--fail-if=device_read_bytes > +5%", "--include=host_quiet"]
    other = build_run(tmp_path / "other", loaded)
    sides = [folders / "few", other]
    assert called(["compare", *sides, words[0]]) == 6
    said = "other processes wrote, and changed no bytes read"
    assert called(["compare", *sides, *words]) == 0, said
    quiet = [folders / "few", folders / "a"]
    assert called(["compare", *quiet, *words]) == 0, "a host that was quiet excludes none"
    for folder in (other, folders / "a"):
        kept = tmp_path / f"{folder.name}.json"
        assert called(["compare", str(folder), f"--save-baseline={kept}", words[1]]) == 0
        assert called(["compare", str(kept), str(folders / "few"), words[0]]) == 0


@pytest.mark.parametrize(
    ("repeats", "reason"),
    [
        ((1, 2, 3), "excluded in B: cache state not reached"),
        (
            (1,),
            "fewer than 3 trials per run do not show their spread; excluded: cache state not"
            " reached",
        ),
    ],
)
def test_a_gate_says_why_trials_are_excluded(
    folders: Path, tmp_path: Path, repeats: tuple[int, ...], reason: str
) -> None:
    def warms(record: Json) -> None:
        if record["repeat"] in repeats:
            warm(record)

    other = build_run(tmp_path / "other", warms)
    gates = [parse_gate("full_pass_seconds > +900%"), parse_gate("full_pass_seconds > 9999s")]
    results = [*compare(load_runs([folders / "few", other]), gates).gate_results]
    found = [(one.verdict, one.reason) for one in results if dict(one.treatment) == COLD]
    assert found == [("undecided", reason)] * 2, "also a bound is not judged by excluded trials"
    alone = [one for one in judge(load_run(other), gates[1:]) if dict(one.treatment) == COLD]
    assert [one.reason for one in alone] == [reason.replace(" in B", "")]


def test_a_run_with_all_trials_excluded_is_an_error_message(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def all_spoilt(record: Json) -> None:
        record["cache"]["resident_bytes_before"] = 4096
        record["cache"]["requested"] = "cold"

    other = build_run(tmp_path / "other", all_spoilt)
    assert called(["compare", folders / "few", other]) == 2
    assert "no treatment with figures on both sides" in capsys.readouterr().err
    gate = "--fail-if=device_read_bytes > +5%"
    assert called(["compare", folders / "few", other, gate]) == 6, "it is undecided"
    capsys.readouterr()
    assert called(["show", other]) == 0
    assert "valid 0 of " in capsys.readouterr().out


def three(folders: Path) -> list[str | Path]:
    """Return the words that compare three runs."""
    return ["compare", *(folders / name for name in ("a", "again", "slow"))]


def test_the_comparison_page_loads_nothing_and_has_the_same_figures(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "compared.html"
    words = [*three(folders), "--html", page]
    assert called([*words, "--fail-if", "full_pass_seconds > +10%", "--csv"]) == 5
    text = page.read_text()
    assert loads_of(text) == []
    assert "<script" not in text
    assert "table.pagecage th" in text, "its tables have no style"
    assert text.count("<svg") == 1
    assert "Nothing that is recorded differs" in text
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert all(f"{float(row['ratio']):.3g}×" in text for row in rows if row["ratio"])
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert called([*words[:-1], tmp_path / "no/such/folder.html"]) == 2


def test_a_run_against_itself_is_refused(folders: Path) -> None:
    with pytest.raises(PagecageError, match="with itself"):
        load_runs([folders / "a", folders / "a"])


@pytest.mark.parametrize(
    ("gate", "other", "status"),
    [
        ("full_pass_seconds > +10%", "slow", 5),
        ("full_pass_seconds > +10%", "again", 0),
        ("full_pass_seconds > +30.5%", "slow", 6),
        ("full_pass_seconds < -10%", "slow", 0),
        ("full_pass_seconds <= +50.5%", "slow", 5),
        ("amplification>=+1000%", "slow", 0),
        ("full_pass_seconds > +10%", "few", 5),
    ],
)
def test_a_gate_has_an_exit_status(
    folders: Path, gate: str, other: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", folders / "a", folders / other, "--fail-if", gate, "--json"]
    assert called(words) == status
    verdicts = {one["verdict"] for one in json.loads(capsys.readouterr().out)["gates"]}
    assert {5: "failed", 6: "undecided", 0: "passed"}[status] in verdicts


@pytest.mark.parametrize(
    "text",
    [
        *("", "read_seconds", "> +10%", "READ_SECONDS > +1%", "read seconds > +10%"),
        *("read_seconds > 10%", "read_seconds > +10", "read_seconds = +10%"),
        *("read_seconds > +1e3%", "read_seconds > ++10%", "read_seconds > +10% x"),
        *("read_seconds > +.5%", "read_seconds < -100%", "read_seconds > +٣%"),
    ],
)
def test_invalid_gates_are_refused(text: str) -> None:
    with pytest.raises(PagecageError, match="--fail-if"):
        parse_gate(text)


def test_a_gate_on_what_no_trial_has_is_refused(folders: Path) -> None:
    with pytest.raises(PagecageError, match="no trial has 'read_minutes'"):
        compare(load_runs([folders / "a", folders / "slow"]), [parse_gate("read_minutes > +1%")])


@given(
    sign=st.sampled_from((">", ">=", "<", "<=")),
    percent=st.decimals(-99, 999, places=1),
    low=st.floats(0.01, 10),
    high=st.floats(0.01, 10),
)
def test_a_gate_is_decided_exactly_where_its_interval_is_on_one_side(
    sign: str, percent: Decimal, low: float, high: float
) -> None:
    low, high = sorted((low, high))
    gate = parse_gate(f"x_seconds {sign} {percent:+}%")
    verdict, _ = evaluate_gate(gate, MedianSummary(9, (low + high) / 2, low, high, "95 %"))
    beyond = [eval(f"{end} {sign} {1 + float(percent) / 100}") for end in (low, high)]
    assert verdict == ("failed" if all(beyond) else "undecided" if any(beyond) else "passed")
    assert evaluate_gate(gate, MedianSummary(2, 1, low, high, "range"))[0] == "undecided"
    assert evaluate_gate(gate, None)[0] == "undecided"


def test_treatments_with_equal_trials_are_an_a_a_pair(tmp_path: Path) -> None:
    def by_source(plan: Json) -> None:
        for trial in plan["trials"]:
            trial["workload"] = {"arguments": [trial["treatment"]["source"]]}

    folder = build_run(tmp_path / "run", times(1))
    edit(folder / "plan.json", by_source)
    assert identical_treatments(load_run(folder), COLD) == [{**COLD, "pattern": "random"}]


IDENTICAL = {**DEFINITION, "identical": [{"pattern": ["sequential", "random"]}]}


def test_levels_that_are_declared_identical_are_an_a_a_pair(tmp_path: Path) -> None:
    run = load_run(build_run(tmp_path / "run", times(1), definition=IDENTICAL))
    assert identical_treatments(run, COLD) == [{**COLD, "pattern": "random"}]
    other = load_run(build_run(tmp_path / "other", times(1)))
    assert identical_treatments(other, COLD) == []


@pytest.mark.parametrize(
    ("factor", "repeats", "share"),
    [(1.1, 6, pytest.approx(0.1, abs=0.02)), (1, 6, None), (1.2, 3, pytest.approx(0.2, abs=0.05))],
)
def test_a_floor_is_what_an_a_a_pair_shows_beyond_its_repeats(
    tmp_path: Path, factor: float, repeats: int, share: object
) -> None:
    """`random` is declared to be `sequential`, and takes `factor` as long."""
    change = times(1)

    def with_factor(record: Json) -> None:
        change(record)
        if record["response"] and record["treatment"]["pattern"] == "random":
            record["response"]["full_pass_seconds"] *= factor

    run = build_run(tmp_path / "run", with_factor, definition=IDENTICAL, repeats=repeats)
    floor = noise_floor(load_run(run), COLD, "full_pass_seconds")
    assert (floor and floor.share) == share
    assert floor is None or floor.kind == "a_a_pair"


def test_a_floor_of_few_repeats_is_their_range(tmp_path: Path) -> None:
    run = load_run(build_run(tmp_path / "few", times(1)))
    floor = noise_floor(run, COLD, "full_pass_seconds")
    assert floor is not None
    assert floor.kind == "range"
    assert 0 < floor.share < 0.05
    four = noise_of([1.0, 1.1, 1.2, 1.3])
    assert four is not None
    assert four.share == pytest.approx(0.3)
    assert [noise_of([1.0]), noise_of([0.0, 1.0]), noise_of([1.0] * 5)] == [None] * 3


def test_three_runs_in_every_format(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = three(folders)
    assert called([*words, "--csv"]) == 0
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert len(rows) == 24
    slow = next(row for row in rows if row["run"] == "C" and row["source"] == "unloaded")
    ratio, a, b = (float(slow[name]) for name in ("ratio", "a_median", "b_median"))
    assert ratio == pytest.approx(b / a, rel=0.01)
    assert called([*words, "--markdown"]) == 0
    text = capsys.readouterr().out
    rows_of_one = [line for line in text.splitlines() if re.match(r"\|.*unloaded", line)]
    assert len({line.count("|") for line in rows_of_one}) == 1
    assert "Nothing that is recorded differs" in text
    assert called([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [run["run_id"] for run in data["runs"]] == ["a", "again", "slow"]
    assert all(len(row["changes"]) == 2 and len(row["cells"]) == 3 for row in data["rows"])
    assert data["rows"][4]["changes"][0]["ratio"]["kind"] == "95 %"
    assert called(words) == 0
    shown = capsys.readouterr().out
    assert "C / A" in shown
    assert "Nothing that is recorded differs" not in shown
