"""The kernel's text formats: exact values; missing or malformed ones are omitted, never zero."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pagecage.linux.procfs import (
    parse_flat_keyed,
    parse_limits,
    parse_meminfo,
    parse_nested_keyed,
    parse_pressure,
    read_text,
)

keys = st.from_regex(r"[a-z][a-z0-9_.]{0,15}", fullmatch=True)
devices = st.builds(
    lambda major, minor: f"{major}:{minor}", st.integers(0, 4095), st.integers(0, 999)
)
counts = st.integers(0, 2**64 - 1)


@given(st.dictionaries(keys, counts | st.integers(-(2**31), -1)))
def test_flat_keyed_round_trip(table: dict[str, int]) -> None:
    assert parse_flat_keyed("".join(f"{key} {value}\n" for key, value in table.items())) == table


def test_flat_keyed_skips_values_that_are_not_numbers() -> None:
    assert parse_flat_keyed("anon 5\nhigh max\nlow\n\nthree words here\nfile 7") == {
        "anon": 5,
        "file": 7,
    }


@given(st.dictionaries(devices, st.dictionaries(keys, counts)))
def test_nested_keyed_round_trip(table: dict[str, dict[str, int]]) -> None:
    lines = (
        " ".join([device, *(f"{key}={value}" for key, value in row.items())])
        for device, row in table.items()
    )
    assert parse_nested_keyed("\n".join(lines)) == table


def test_a_device_that_was_never_busy_is_a_bare_key() -> None:
    assert parse_nested_keyed("8:0\n254:16 rbytes=5 rios=1\n\n") == {
        "8:0": {},
        "254:16": {"rbytes": 5, "rios": 1},
    }


@given(
    st.dictionaries(
        devices, st.dictionaries(st.sampled_from(["rbps", "wbps", "riops", "wiops"]), counts)
    )
)
def test_limits_are_text(table: dict[str, dict[str, int]]) -> None:
    wanted = {
        device: {**{key: str(value) for key, value in row.items()}, "idle": "max"}
        for device, row in table.items()
    }
    lines = (
        " ".join([device, *(f"{k}={v}" for k, v in row.items())]) for device, row in wanted.items()
    )
    assert parse_limits("\n".join(lines)) == wanted


@given(st.lists(st.floats(0, 100), min_size=3, max_size=3), st.integers(0, 2**53))
def test_pressure_round_trip(averages: list[float], total: int) -> None:
    rounded = [round(average, 2) for average in averages]
    row = dict(zip(("avg10", "avg60", "avg300"), rounded, strict=True))
    line = " ".join([*(f"{key}={value:.2f}" for key, value in row.items()), f"total={total}"])
    expected = {**row, "total": total}
    assert parse_pressure(f"some {line}\nfull {line}\n") == {"some": expected, "full": expected}


def test_pressure_that_is_switched_off_is_nothing() -> None:
    assert parse_pressure("") == {}


def test_meminfo_with_and_without_units() -> None:
    text = "MemTotal:        2030564 kB\nHugePages_Total:       0\nSwapTotal:\nnonsense\n"
    assert parse_meminfo(text) == {"MemTotal": 2030564, "HugePages_Total": 0}


@given(st.text(max_size=200))
def test_no_text_crashes_a_counter(text: str) -> None:
    parse_flat_keyed(text)
    parse_nested_keyed(text)
    parse_limits(text)


def test_a_missing_file_is_not_zero(tmp_path: Path) -> None:
    assert read_text(tmp_path / "memory.peak") is None
    assert read_text(tmp_path) is None
    (tmp_path / "empty").touch()
    assert read_text(tmp_path / "empty") == ""
