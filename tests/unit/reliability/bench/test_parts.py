"""The benchmark's parts by name, what an interruption keeps, and the time left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagecage.errors import PagecageError
from reliability.bench.__main__ import main, measure, time_left
from reliability.bench.bed import Figure, Results, Session
from reliability.bench.parts import PARTS, Part, chosen, listed

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
    assert told.err.startswith(
        "pagecage: there is no part 'cpas' of the benchmark\n  fix: did you mean \"caps\"?\n"
    )
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
    assert (
        measure(
            (part("first", go_on, go_on), part("second", go_on)), Session("auto"), Results(path)
        )
        == 0
    )
    assert measure((part("first", go_on),), Session("auto"), Results(path)) == 0
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
