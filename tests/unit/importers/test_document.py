"""Quantities of four tools, each read as the tool itself reads it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.errors import PagecageError
from pagecage.importers.document import (
    cpu_percent,
    docker_bytes,
    kubernetes_quantity,
    plain,
    systemd_bytes,
    systemd_seconds,
    whole_bytes,
)
from pagecage.units import exact_size, parse_size_bytes

MEMORY, IO = 1024, 1000
counts = st.integers(1, 10**6)


@pytest.mark.parametrize(
    ("written", "kubernetes", "docker", "memory", "io"),
    [
        ("128M", 128_000_000, 134_217_728, 134_217_728, 128_000_000),
        ("128K", None, 131_072, 131_072, 128_000),
        ("128k", 128_000, 131_072, None, None),
        ("128Mi", 134_217_728, 134_217_728, None, None),
        ("128m", Decimal("0.128"), 134_217_728, None, None),
        ("128mb", None, 134_217_728, None, None),
        ("128", 128, 128, 128, 128),
        ("1.5G", 1_500_000_000, 1_610_612_736, 1_610_612_736, 1_500_000_000),
        ("1e3", 1000, None, None, None),
        ("128B", None, 128, 128, 128),
        ("1G 500M", None, None, 1_598_029_824, 1_500_000_000),
        ("1G500M", None, None, 1_598_029_824, 1_500_000_000),
    ],
)
def test_a_suffix_means_what_its_tool_defines(
    written: str,
    kubernetes: Decimal | int | None,
    docker: int | None,
    memory: int | None,
    io: int | None,
) -> None:
    readers: tuple[Callable[[str], Decimal | int | None], ...] = (
        kubernetes_quantity,
        docker_bytes,
        lambda t: systemd_bytes(t, MEMORY),
        lambda t: systemd_bytes(t, IO),
    )
    for read, expected in zip(readers, (kubernetes, docker, memory, io), strict=True):
        if expected is None and written != "128K":
            with pytest.raises(PagecageError):
                read(written)
        elif expected is not None:
            assert read(written) == expected


@given(counts, st.sampled_from(["Ki", "Mi", "Gi", "Ti"]), st.sampled_from(["k", "M", "G", "T"]))
def test_kubernetes_two_bases(count: int, binary: str, decimal: str) -> None:
    power = "KMGT".index(binary[0]) + 1
    assert kubernetes_quantity(f"{count}{binary}") == count * 1024**power
    assert kubernetes_quantity(f"{count}{decimal}") == count * 1000 ** ("kMGT".index(decimal) + 1)
    assert kubernetes_quantity(f"{count * 1000}m") == count


@given(counts, st.sampled_from("bkmgtp"), st.sampled_from(["", "b", "ib", "B", "iB"]))
def test_every_suffix_of_docker_is_a_power_of_1024(count: int, letter: str, rest: str) -> None:
    expected = count * 1024 ** "bkmgtp".index(letter)
    text = f"{count}{letter}{rest if letter != 'b' else ''}"
    if expected < 2**63:
        assert docker_bytes(text) == docker_bytes(text.upper()) == expected


@given(st.integers(0, 2**62), st.sampled_from([MEMORY, IO]))
def test_plain_bytes_are_bytes_everywhere(count: int, base: int) -> None:
    assert systemd_bytes(str(count), base) == count
    assert docker_bytes(str(count)) == count
    assert whole_bytes(kubernetes_quantity(count)) == count


@given(st.text(max_size=30))
def test_any_other_text_is_refused(text: str) -> None:
    for read in (
        kubernetes_quantity,
        docker_bytes,
        systemd_seconds,
        lambda t: systemd_bytes(t, IO),
    ):
        with contextlib.suppress(PagecageError):
            found = read(text)
            assert found is None or found >= 0 or text.strip().startswith("-")


@pytest.mark.parametrize("value", [True, None, [], "NaN", "Infinity", "1_000", "0x10", "1.2.3.G"])
def test_values_that_are_not_quantities(value: object) -> None:
    for read in (kubernetes_quantity, docker_bytes):
        with pytest.raises(PagecageError):
            read(value)


def test_infinity_is_not_a_limit() -> None:
    assert systemd_bytes("infinity", MEMORY) is None
    assert systemd_bytes(str(2**64 - 1), MEMORY) is None
    assert systemd_seconds("infinity") is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", "0.5"),
        ("1s 500ms", "1.5"),
        ("1.500000s", "1.5"),
        ("2min", "120"),
        ("10us", "0.00001"),
        ("3", "3"),
    ],
)
def test_time_spans(text: str, seconds: str) -> None:
    assert systemd_seconds(text) == Decimal(seconds)


@given(st.decimals(min_value="0.001", max_value=1000, places=3))
def test_a_share_of_a_cpu_is_whole_percent_and_at_least_one(cpus: Decimal) -> None:
    assert cpu_percent(cpus) >= 1
    assert abs(cpu_percent(cpus) - cpus * 100) <= max(Decimal("0.5"), 1 - cpus * 100)


@given(st.integers(0, 2**62))
def test_a_size_of_a_cage_file_is_exact(count: int) -> None:
    assert parse_size_bytes(exact_size(count)) == count


def test_sizes_of_the_cloud_keep_their_unit() -> None:
    assert [exact_size(n) for n in (512 << 20, 20_000_000, 131_072_000, 500 << 30, 1001)] == [
        *("512MiB", "20MB", "125MiB", "500GiB", "1001B")
    ]


def test_formatted_numbers_have_no_exponent() -> None:
    assert [plain(Decimal(text)) for text in ("1E+3", "0.500", "2.0", "100")] == [
        "1000",
        "0.5",
        "2",
        "100",
    ]
