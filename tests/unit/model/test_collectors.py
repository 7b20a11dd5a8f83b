"""Lines of own collectors: what is a field, and the responses of a series."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.model.collectors import (
    MOST_FIELDS,
    FieldValues,
    LineError,
    OwnCollector,
    clashing,
    field_values,
    fields_of,
    gaps,
    lost_events,
    parse_line,
    responses_of,
    script_values,
    wrong_name,
)
from pagecage.model.trial import trial_from_json, trial_to_json
from tests.fake_host.machine import make_trial

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def numbers(line: Any) -> dict[str, float]:
    return dict(field_values(parse_line(json.dumps(line)), 10.0, 0.0).values)


@given(st.text() | st.binary().map(lambda raw: raw.decode(errors="replace")))
def test_any_text_is_an_object_or_a_line_error(text: str) -> None:
    with suppress(LineError):
        assert isinstance(parse_line(text), dict)


@given(st.dictionaries(st.text(), JSON))
def test_every_field_of_an_object_is_a_finite_number_with_a_plain_name(line: Any) -> None:
    for name, value in numbers(line).items():
        assert math.isfinite(value)
        assert name.replace("_", "a").isalnum()
        assert name == name.lower()


@given(st.dictionaries(st.text(), JSON), NUMBERS)
def test_the_time_is_a_stamp_of_the_right_clock_or_that_of_arrival(line: Any, t: float) -> None:
    found = field_values({**line, "t": t}, arrived=20.0, started=10.0)
    is_right = 9.0 <= t <= 21.0
    assert (found.t, found.has_wrong_time) == ((t, False) if is_right else (20.0, True))
    without = {key: value for key, value in line.items() if key != "t"}
    assert not field_values(without, 20.0, 10.0).has_wrong_time


@given(JSON, st.sampled_from(["map", "stats", "printf", "hist", "lost_events", None]))
def test_any_line_of_bpftrace_is_read(data: Any, kind: str | None) -> None:
    found = script_values({"type": kind, "data": data}, 3.0)
    assert found is None or all(map(math.isfinite, found.values.values()))
    assert lost_events({"type": kind, "data": data}) >= 0 or isinstance(data, dict)


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ({"a": 1, "b": "2", "c": None, "d": True, "e": [1]}, {"a": 1}),
        ({"Queue Depth": 3, "cpu%": 0.5}, {"queue_depth": 3, "cpu": 0.5}),
        ({"io": {"read": {"bytes": 7}}}, {"io_read_bytes": 7}),
        ({"": 1, "%": 2}, {}),
        ({"big": 10**400}, {}),
        ({"t": 5, "t_seconds": 6}, {"t_seconds": 6}),
    ],
)
def test_fields(line: dict[str, Any], fields: dict[str, float]) -> None:
    assert numbers(line) == fields


@pytest.mark.parametrize(
    "text", ["", "1", "[1]", '"a"', "{", "NaN", '{"a": NaN}', '{"a": Infinity}']
)
def test_what_is_no_json_object_is_no_line(text: str) -> None:
    with pytest.raises(LineError):
        parse_line(text)


def test_objects_that_are_nested_too_deep_are_no_defect() -> None:
    with pytest.raises(LineError):
        parse_line('{"a":' * 100_000)
    deep: Any = 1
    for _ in range(50):
        deep = {"a": deep}
    assert numbers({"b": 2, **deep}) == {"b": 2}


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ({"type": "map", "data": {"@reads": 5}}, {"reads": 5}),
        ({"type": "map", "data": {"@": 5}}, {"map": 5}),
        ({"type": "map", "data": {"@by": {"cat": 2, "sh,1": 3}}}, {"by_cat": 2, "by_sh_1": 3}),
        ({"type": "stats", "data": {"@s": {"count": 2, "total": 4}}}, {"s_count": 2, "s_total": 4}),
        ({"type": "printf", "data": '{"x": 5}\n'}, {"x": 5}),
        ({"type": "printf", "data": "hello"}, None),
        ({"type": "hist", "data": {"@h": [{"min": 0, "max": 1, "count": 3}]}}, None),
        ({"type": "attached_probes", "data": {"probes": 3}}, None),
    ],
)
def test_lines_of_bpftrace(line: dict[str, Any], fields: dict[str, float] | None) -> None:
    found = script_values(line, 1.0)
    assert (found and dict(found.values)) == fields


def series(*values: tuple[float, float]) -> list[FieldValues]:
    return [FieldValues(t, {"x_bytes": value}) for t, value in values]


def test_statistics_are_those_of_the_measured_part() -> None:
    lines = series((0.9, 100), (1.0, 2), (3.0, 7), (2.0, 6), (4.0, 500))
    assert responses_of("mine", lines, 1.0, 3.0) == {
        "mine_mean_x_bytes": 5,
        "mine_last_x_bytes": 7,
        "mine_delta_x_bytes": 5,
        "mine_max_x_bytes": 7,
    }


def test_a_delta_needs_two_values_and_the_others_one() -> None:
    assert responses_of("mine", series((1.0, 4)), 0.0, 2.0) == {
        "mine_mean_x_bytes": 4,
        "mine_last_x_bytes": 4,
        "mine_delta_x_bytes": None,
        "mine_max_x_bytes": 4,
    }
    assert set(responses_of("mine", series((1.0, 4)), 5.0, 6.0).values()) == {None}


@given(st.lists(st.tuples(st.floats(0, 10), NUMBERS.map(float)), max_size=20))
def test_a_response_is_finite_or_unknown(values: list[tuple[float, float]]) -> None:
    for value in responses_of("mine", series(*values), 2.0, 8.0).values():
        assert value is None or math.isfinite(value)


def test_the_first_fields_become_responses() -> None:
    line = FieldValues(1.0, {f"f{number}": number for number in range(MOST_FIELDS + 9)})
    assert len(fields_of([line])) == MOST_FIELDS + 9
    assert len(responses_of("mine", [line], 0, 2)) == 4 * MOST_FIELDS


def test_gaps_begin_a_second_after_the_period() -> None:
    times = [0.0, 1.0, 4.0, 5.0]
    assert gaps(times, 0.0, 5.5, 1.0) == [3.0]
    assert gaps(times, 0.0, 5.5, 2.5) == []
    assert gaps(times, 0.0, 9.0, 1.0) == [3.0, 4.0]
    assert gaps(times, 0.0, 9.0, 0.0) == []


def test_names() -> None:
    assert wrong_name("queue", ["iostat"]) is None
    assert "is a collector of pagecage" in (wrong_name("iostat", ["iostat"]) or "")
    assert "is a collector of pagecage" in (wrong_name("sampler", []) or "")
    assert "is not the name" in (wrong_name("Queue-1", []) or "")
    assert clashing(["a", "ab", "b"]) is None
    assert clashing(["queue_mean", "queue"]) == ("queue", "queue_mean")


def test_a_trial_without_own_collectors_has_no_key() -> None:
    assert "own_collectors" not in trial_to_json(make_trial())
    own = (OwnCollector("a", ("x", "y"), required=True), OwnCollector("b", ("z",), is_script=True))
    data = json.loads(json.dumps(trial_to_json(make_trial(own_collectors=own))))
    assert trial_from_json(data).own_collectors == own
