"""Direction in which the benchmark of appends divides, and when it says that an aim was missed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from reliability.bench.appends import MATCHES, PAIRS, Match, Pcappend, compare

MATCH = Match("log / write", ("pclog",), ("write",), ("--procs", "4", "--bytes", "1"), 4.0)


def runs_of(seconds: Mapping[str, float], order: list[str]) -> Pcappend:
    def pcappend(*words: str) -> Mapping[str, float]:
        assert words[0] == "--method"
        assert words[-4:] == MATCH.load
        order.append(words[1])
        return {"append_seconds": seconds[words[1]], "call_p999_us": 1.0}

    return pcappend


def test_it_says_how_many_times_longer_theirs_takes() -> None:
    figure = compare(MATCH, runs_of({"pclog": 1.0, "write": 5.0}, []), aimed=True)
    assert (figure.ratio, figure.low, figure.met) == (5.0, 5.0, True)


@pytest.mark.parametrize(("aimed", "met"), [(True, False), (False, True)])
def test_an_aim_is_missed_where_there_is_one(aimed: bool, met: bool) -> None:
    figure = compare(MATCH, runs_of({"pclog": 1.0, "write": 3.9}, []), aimed=aimed)
    assert figure.met is met
    assert ("none" in figure.aim) is not aimed


def test_both_come_first_by_turns() -> None:
    order: list[str] = []
    compare(MATCH, runs_of({"pclog": 1.0, "write": 1.0}, order), aimed=True)
    first = order[::2]
    assert len(order) == 2 * PAIRS
    assert abs(first.count("pclog") - first.count("write")) <= 1


def test_a_side_may_have_its_own_load() -> None:
    load, alone = ("--procs", "4"), ("--procs", "1")
    match = Match("four / one", ("log",), ("log",), load, None, our_load=alone)
    calls: list[tuple[str, ...]] = []

    def pcappend(*words: str) -> Mapping[str, float]:
        calls.append(words)
        return {"append_seconds": float(words[-1])}

    figure = compare(match, pcappend, aimed=True)
    assert set(calls) == {("--method", "log", *alone), ("--method", "log", *load)}
    assert (figure.ratio, figure.met) == (4.0, True)
    assert "with one process" in figure.says


def test_every_aim_is_there() -> None:
    assert [match.least for match in MATCHES if match.least is not None] == [
        4.0,
        4.0,
        1.0,
        1 / 1.5,
        1.0,
    ]
