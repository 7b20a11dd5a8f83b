"""Sizes as people write them: read exactly, refused where they mean two things, shown in three
digits.
"""

from __future__ import annotations

import re
from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.errors import PagecageError
from pagecage.units import (
    exact_size,
    format_both_rates,
    format_bytes,
    format_hours,
    format_microseconds,
    format_rate,
    format_seconds,
    page_floor_bytes,
    parse_exact_bytes,
    parse_size_bytes,
)

SCALES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}


@given(
    number=st.integers(0, 2**63 - 1),
    unit=st.sampled_from(sorted(SCALES)),
    gap=st.sampled_from(["", " ", "  "]),
)
def test_whole_sizes_are_read_exactly(number: int, unit: str, gap: str) -> None:
    number //= SCALES[unit]
    assert parse_size_bytes(f" {number}{gap}{unit} ") == number * SCALES[unit]


@given(tenths=st.integers(0, 2**63 - 1), unit=st.sampled_from(sorted(set(SCALES) - {"B"})))
def test_parts_are_rounded_to_the_nearest_byte(tenths: int, unit: str) -> None:
    tenths //= SCALES[unit]
    exact = tenths * SCALES[unit]
    assert abs(parse_size_bytes(f"{tenths // 10}.{tenths % 10}{unit}") * 10 - exact) <= 5


@pytest.mark.parametrize("text", ["200M", "1K", "2G", "5", "1kiB", "1mb", "3 GiBs", "1Mib"])
def test_a_unit_that_means_two_things_is_refused(text: str) -> None:
    with pytest.raises(PagecageError, match="has no clear unit") as caught:
        parse_size_bytes(text, "cgroups/x.toml: MemoryMax")
    assert caught.value.message.startswith(f"cgroups/x.toml: MemoryMax: {text!r}")
    assert "MiB" in caught.value.hint


@pytest.mark.parametrize(
    "text", ["", "MB", "-1MB", "1e9B", "1.MB", ".5GiB", "1,5GB", "0x10B", "1 2MB", "٣MB", "1\n2MB"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(PagecageError, match="is not a size") as caught:
        parse_size_bytes(text)
    assert '"200MB"' in caught.value.hint


@given(st.text(max_size=60))
def test_no_text_is_a_crash(text: str) -> None:
    with suppress(PagecageError):
        assert parse_size_bytes(text) >= 0


def test_a_number_no_disk_could_hold_is_refused() -> None:
    with pytest.raises(PagecageError, match="is too large"):
        parse_size_bytes("9" * 400 + "B")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (640, "640 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (128 * 2**20, "128 MiB"),
        (6.4 * 2**20, "6.4 MiB"),
        (999.6 * 2**20, "1000 MiB"),
        (1023 * 2**20, "1023 MiB"),
        (2**40, "1 TiB"),
    ],
)
def test_bytes_for_people(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0, "0 B/s"),
        (999, "999 B/s"),
        (20_100_000, "20.1 MB/s"),
        (999.6e6, "1000 MB/s"),
        (5e15, "5000000 GB/s"),
    ],
)
def test_rates_for_people(rate: float, text: str) -> None:
    assert format_rate(rate) == text


@given(st.floats(0, 1e18))
def test_no_figure_is_shown_with_an_exponent(count: float) -> None:
    for text in (format_bytes(count), format_rate(count)):
        assert re.fullmatch(r"[0-9]+(\.[0-9]+)? (B|[KMGT]iB|B/s|[kMG]B/s)", text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.36, "0.36 s"),
        (14.9, "14.9 s"),
        (99.4, "99.4 s"),
        (185, "3 min 05 s"),
        (119.7, "2 min 00 s"),
    ],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@given(st.integers(0, 2**62))
def test_the_kernel_keeps_whole_pages(count: int) -> None:
    floor = page_floor_bytes(count)
    assert floor % 4096 == 0
    assert floor <= count < floor + 4096


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (131_072_000, "125MiB"),
        (81_250_000, "81.25MB"),
        (2**40, "1TiB"),
        (17, "17B"),
        (43_380_000, "43.38MB"),
        (32767 * 2**30, "32767GiB"),
        (2_103_750_000_000, "2103.75GB"),
        (0, "0B"),
        (100_000_000, "100MB"),
    ],
)
def test_a_size_is_said_exactly(count: int, text: str) -> None:
    assert exact_size(count) == text


@given(st.integers(0, 2**62))
def test_an_exact_size_reads_back(count: int) -> None:
    assert parse_size_bytes(exact_size(count)) == count
    assert parse_size_bytes(exact_size(count, " ")) == count


def test_a_rate_per_gib_is_not_rounded() -> None:
    assert parse_exact_bytes("0.12MiB") == Fraction(12 * 2**20, 100)
    assert parse_size_bytes("0.12MiB") == 125_829


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (131_072_000, "131.1 MB/s (125 MiB/s)"),
        (81_250_000, "81.25 MB/s (77.49 MiB/s)"),
        (0, "0 MB/s (0 MiB/s)"),
        (10**10, "10000 MB/s (9537 MiB/s)"),
        (1.25e9, "1250 MB/s (1192 MiB/s)"),
    ],
)
def test_a_rate_in_both_bases(rate: float, text: str) -> None:
    assert format_both_rates(rate) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (60, "60 s"),
        (1800, "30 min 00 s"),
        (3599, "59 min 59 s"),
        (4993, "1 h 23 min"),
        (42255, "11 h 44 min"),
    ],
)
def test_long_durations_for_people(seconds: float, text: str) -> None:
    assert format_hours(seconds) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0.5, "0.5 us"),
        (440, "440 us"),
        (999.6, "1000 us"),
        (4100, "4.1 ms"),
        (405e3, "405 ms"),
        (2.5e6, "2.5 s"),
    ],
)
def test_latencies_have_three_digits(us: float, text: str) -> None:
    assert format_microseconds(us) == text
