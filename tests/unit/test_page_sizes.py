"""Conversions between pages and bytes, for every page size of Linux on arm64."""

from __future__ import annotations

import dataclasses
import itertools
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.linux import page_cache
from pagecage.linux.page_cache import Residency
from pagecage.memory_search.need import (
    MeasuredLevels,
    MemoryLevel,
    MemoryTrial,
    SearchRule,
    grid,
    next_round,
)
from pagecage.model.cache_proof import CHARGE_LAG_PAGES, charge_lag_bytes
from pagecage.model.cage import Cage, expected_read_back
from pagecage.model.record import record_from_json, record_to_json
from pagecage.units import (
    LEAST_PAGE_BYTES,
    MIB,
    kernel_page_bytes,
    page_ceil_bytes,
    page_floor_bytes,
)
from pagecage.verdicts.cache_state import judge_cache_state
from pagecage.verdicts.limits import CHARGE_BATCH_PAGES, GRACE, judge_limits
from pagecage.verdicts.windows import REFAULT_SHARE, Window, binding_limit
from tests.fixtures.records import caged, make_record, plain_record

PAGES = st.sampled_from([4096, 16384, 65536])
COUNTS = st.integers(0, 2**50)
RULE = SearchRule(MIB, slowdown=0.05, precision=0.02, repeats=3, reference_repeats=3)


@given(COUNTS, PAGES)
def test_rounding_moves_by_less_than_a_page(count: int, page: int) -> None:
    floor, ceil = page_floor_bytes(count, page), page_ceil_bytes(count, page)
    assert floor % page == ceil % page == 0
    assert count - page < floor <= count <= ceil < count + page
    assert (floor == ceil) is (count % page == 0)


@given(st.integers(1, 2**50), PAGES)
def test_the_kernel_is_expected_to_hold_whole_pages_of_its_own(limit: int, page: int) -> None:
    expected = expected_read_back(Cage("c", {"MemoryMax": limit, "MemoryHigh": limit}), page)
    assert {int(held) for held in expected.values()} == {limit // page * page}


@given(PAGES, st.integers(1, 512))
def test_the_kernels_own_lag_grows_with_its_pages(page: int, cpus: int) -> None:
    assert charge_lag_bytes(cpus, page) == CHARGE_LAG_PAGES * cpus * page


@given(PAGES, st.integers(1, 2**40))
def test_a_warm_file_fills_whole_pages_of_the_host(page: int, size: int) -> None:
    whole = -(-size // page) * page

    def verdict(resident: int) -> str:
        cache = {
            "requested": "warm",
            "resident_bytes_before": resident,
            "file_bytes": size,
            "method": "cachestat",
        }
        return judge_cache_state(make_record(cache=cache, page_bytes=page)).verdict

    assert verdict(whole - page) == "not_reached"
    assert verdict(whole) == "reached"


@given(PAGES, st.integers(1, 1000), st.integers(1, 2**40))
def test_a_file_is_resident_if_all_of_its_pages_are(page: int, pages: int, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_cache, "kernel_page_bytes", lambda: page)
        assert Residency(pages * page, size, "mincore").is_full is (pages * page >= size)


@given(PAGES)
def test_refaults_weigh_as_much_as_their_pages(page: int) -> None:
    """The same count of refaults holds back a program four or sixteen times as much."""
    read = 100 * MIB
    just = REFAULT_SHARE * read / page

    def found(refaults: float) -> str:
        moved = {"rbytes": float(read), "rios": 1.0, "wbytes": 0.0, "wios": 0.0}
        window = Window(
            start_seconds=0.0,
            seconds=1.0,
            moved=moved,
            caps={},
            waited_io=0.0,
            waited_memory=0.0,
            waited_cpu=0.0,
            disk_busy=0.0,
            refault_pages=refaults,
            limit_hits=10.0,
            cpu=0.1,
            throttled=0.0,
            page_bytes=page,
        )
        return binding_limit(window, {"MemoryMax": MIB}).name

    assert found(just * 1.01) == "memory"
    assert found(just * 0.99) == "none"


@given(PAGES, st.integers(4, 2000), st.floats(0.001, 0.2))
def test_levels_of_memory_are_whole_pages_and_differ(page: int, mib: int, precision: float) -> None:
    levels = grid(dataclasses.replace(RULE, precision=precision), mib * MIB, page)
    assert all(level % page == 0 for level in levels)
    assert all(high - low >= page for high, low in itertools.pairwise(levels))


@given(PAGES, st.integers(1, 10**9))
def test_a_search_asks_for_levels_of_the_hosts_pages(page: int, peak: int) -> None:
    trial = MemoryTrial(1.0, 0.0, peak_bytes=peak + MIB, page_bytes=page)
    measured = MeasuredLevels(MemoryLevel(None, (trial,) * 3))
    assert measured.used_bytes == page_ceil_bytes(peak + MIB, page)
    for request in next_round(RULE, measured):
        assert (request.limit_bytes or 0) % page == 0


@given(PAGES)
def test_memory_may_exceed_its_limit_by_a_batch_of_the_hosts_pages(page: int) -> None:
    cap = 64 * MIB
    allowed = cap * GRACE + CHARGE_BATCH_PAGES * page

    def verdict(peak: float) -> str:
        data = plain_record(page_bytes=page)
        data["cage"] = caged({"MemoryMax": cap})
        for counters in data["counters"].values():
            counters["cgroup"]["memory.peak"] = peak
        record = record_from_json(data)
        (found,) = (one for one in judge_limits(record) if one.property == "MemoryMax")
        return found.verdict

    assert verdict(allowed + 1) == "leaky"
    assert verdict(allowed - 1) != "leaky"


def test_records_without_a_page_size_are_from_x86() -> None:
    data = plain_record()
    data.pop("page_bytes", None)
    assert record_from_json(data).page_bytes == LEAST_PAGE_BYTES
    record = dataclasses.replace(record_from_json(data), page_bytes=65536)
    assert record_from_json(record_to_json(record)).page_bytes == 65536


def test_this_kernel_states_its_page_size() -> None:
    assert kernel_page_bytes() == os.sysconf("SC_PAGE_SIZE") >= LEAST_PAGE_BYTES
