"""Rules on a lasting cache state: undisturbed trials pass, disturbed ones do not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.model import cache_proof
from pagecage.model.cache_proof import charge_lag_bytes, requested_bytes, tolerance_bytes
from pagecage.model.json_codec import from_json
from pagecage.model.record_sections import CacheEvidence
from pagecage.units import LEAST_PAGE_BYTES, MIB

FILES = 64 * MIB
LAG = charge_lag_bytes(2, LEAST_PAGE_BYTES)
SPARE = tolerance_bytes(FILES)
PAGES = FILES // LEAST_PAGE_BYTES
Check = dict[str, int | None]
END = {"checksum": "7", "distinct_bytes": FILES}


def check(*figures: int) -> Check:
    """Return resident, charged, read and reclaimed bytes, and those that the host reclaimed."""
    keys = ("resident_bytes", "charged_bytes", "read_bytes", "reclaimed_bytes")
    return dict(zip((*keys, "host_reclaimed_bytes"), figures, strict=False))


NOTHING, FULL = check(0, 0, 0, 0, 0), check(FILES, 0, 0, 0, 0)


def cache(
    requested: str, start: Check, go: Check | None = None, end: Check | None = None, **more: Any
) -> dict[str, Any]:
    """Return `cache` of a record with these checks."""
    return {
        "requested": requested,
        "file_bytes": FILES,
        "charge_lag_bytes": LAG,
        "resident_bytes_before": FILES if requested == "resident" else 0,
        "start": start,
        "go": go,
        "end": end,
        **more,
    }


def broken_reason(cache: dict[str, Any], requested_bytes: int | None = None) -> str:
    return cache_proof.broken_reason(from_json(CacheEvidence, cache), requested_bytes) or ""


def pages(least: int = 0, most: int = PAGES) -> st.SearchStrategy[int]:
    return st.integers(least, most).map(lambda count: count * LEAST_PAGE_BYTES)


@st.composite
def honest(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    """Draw an undisturbed cold trial, whose slice reads and then drops some pages.

    memory.stat may lag behind, other files are read too, and pages may be read several times.
    """
    set_up, other = draw(pages()), draw(pages())
    first, again = draw(pages(0, PAGES - set_up // LEAST_PAGE_BYTES)), draw(pages())
    dropped, late = (
        draw(pages(0, (set_up + first) // LEAST_PAGE_BYTES)),
        draw(pages(0, LAG // LEAST_PAGE_BYTES)),
    )
    go = check(set_up, max(0, set_up - late), set_up, 0, 0)
    left = set_up + first - dropped
    end = check(left, max(0, left + other - late), set_up + first + again + other, dropped, 0)
    came = draw(pages(0, left // LEAST_PAGE_BYTES))
    return cache("cold", NOTHING, go, end, came_bytes=came), draw(
        pages(0, (set_up + first) // LEAST_PAGE_BYTES)
    )


@given(honest())
def test_undisturbed_cold_trials_pass(trial: tuple[dict[str, Any], int]) -> None:
    found, asked = trial
    assert not broken_reason(found, asked)


@given(trial=honest(), foreign=pages((SPARE + LAG) // LEAST_PAGE_BYTES + 1))
def test_pages_charged_elsewhere_were_read_by_another_process(
    trial: tuple[dict[str, Any], int], foreign: int
) -> None:
    found, _ = trial
    end = found["end"]
    clean = end | {"charged_bytes": min(end["charged_bytes"], end["resident_bytes"])}
    more = clean | {"resident_bytes": end["resident_bytes"] + foreign}
    assert "since it is charged for these pages" in broken_reason(found | {"end": more})


@given(read=pages(), short=pages(SPARE // LEAST_PAGE_BYTES + 1))
def test_bytes_not_read_from_disk_came_from_another_process(read: int, short: int) -> None:
    """This holds for any residency and any charge."""
    found = cache("cold", NOTHING, NOTHING, check(0, FILES, read, 0, 0), came_bytes=0)
    assert not broken_reason(found, read + SPARE)
    expected = "that the workload read were not in the page cache: the slice read only"
    assert expected in broken_reason(found, read + short)
    assert not broken_reason(found | {"came_bytes": read + SPARE})
    assert "entered the page cache" in broken_reason(found | {"came_bytes": read + short})


@given(pages(1))
def test_one_page_before_the_program_starts_is_too_much(foreign: int) -> None:
    reason = broken_reason(cache("cold", check(foreign, 0, 0, 0, 0)))
    assert reason.startswith("before the program started, another process had read")


@given(foreign=pages(1), read=st.just(0) | pages(1, 16), charged=pages(0, 16))
def test_before_go_only_the_slices_own_reads_are_allowed(
    foreign: int, read: int, charged: int
) -> None:
    reason = broken_reason(cache("cold", NOTHING, check(foreign, charged, read, 0, 0)))
    assert bool(reason) == (foreign > (0 if read == 0 else max(read, charged) + SPARE + LAG))


def test_read_ahead_that_waits_at_the_cap_is_charged_before_it_is_counted() -> None:
    """The whole file is being read ahead, and only the first request has passed the limit."""
    assert not broken_reason(cache("cold", NOTHING, check(FILES, FILES, 128 << 10, 0, 0)))


def test_a_step_in_a_sibling_slice_keeps_its_pages() -> None:
    start, end = check(20 * MIB, 0, 0, 0, 0), check(50 * MIB, 30 * MIB, 44 * MIB, 0, 0)
    found = cache("cold", start, start, end, came_bytes=30 * MIB)
    found["step"] = {"resident_bytes_after": 20 * MIB}
    assert not broken_reason(found, FILES)
    assert broken_reason(found | {"end": check(60 * MIB, 30 * MIB, 44 * MIB, 0, 0)}, FILES)
    assert broken_reason(found | {"start": check(24 * MIB, 0, 0, 0, 0), "go": None})
    spare = check(20 * MIB + SPARE, 0, 0, 0, 0)
    assert not broken_reason(found | {"start": spare, "go": None})


@pytest.mark.parametrize("missing", ["charged_bytes", "read_bytes"])
def test_a_missing_counter_breaks_no_state(missing: str) -> None:
    """The other counter still works."""
    start = NOTHING | {missing: None}
    end = check(FILES, FILES, FILES, 0, 0) | {missing: None}
    found = cache("cold", start, start, end, came_bytes=FILES)
    assert not broken_reason(found, FILES)
    other = {"charged_bytes": "read_bytes", "read_bytes": "charged_bytes"}[missing]
    assert broken_reason(found | {"end": end | {other: 0}}, FILES)


@pytest.mark.parametrize(
    ("charged", "reclaimed", "reason"),
    [
        (FILES, 0, "the kernel has lost counts of reads"),
        (FILES // 2, FILES // 2, "the kernel has lost counts of reads"),
        (FILES // 2, 0, "another process read the rest"),
        (0, 0, "another process read the rest"),
    ],
)
def test_pages_charged_to_the_slice_were_read_by_it_whatever_io_stat_shows(
    charged: int, reclaimed: int, reason: str
) -> None:
    """The trial is no data point either way. Pages that are gone tell nothing of their reader."""
    end = check(charged, charged, FILES // 2, reclaimed, 0)
    found = cache("cold", NOTHING, NOTHING, end, came_bytes=FILES)
    assert broken_reason(found).endswith(reason)


def test_a_kernel_without_counters_breaks_no_state() -> None:
    silent = check(FILES)
    assert not broken_reason(cache("cold", check(0), silent, silent, came_bytes=FILES), FILES)


@given(pages())
def test_a_resident_file_is_there_when_the_program_starts_and_at_go(gone: int) -> None:
    short = check(FILES - gone, 0, 0, 0, 0)
    at_start = broken_reason(cache("resident", short))
    at_go = broken_reason(cache("resident", FULL, short))
    assert ("left the page cache before the program started" in at_start) == (gone > SPARE)
    assert ("left the page cache before `go`" in at_go) == (gone > SPARE)


def test_pages_dropped_by_the_workload_are_allowed() -> None:
    """vmtouch -e drops pages, as does pcread --fadvise dontneed, which reports it.

    Both may read them again.
    """
    gone, end = check(0, 0, 0, 0, 0), check(FILES, FILES, FILES, 0, 0)
    assert not broken_reason(cache("resident", FULL, gone, end, evicted_bytes=FILES), FILES)
    assert broken_reason(cache("resident", FULL, gone, evicted_bytes=FILES // 2))


def test_pages_reclaimed_by_the_slices_limit_are_allowed() -> None:
    """A step in the same slice has loaded the files, so the slice is charged."""
    start = check(FILES, FILES, FILES, 0, 0)
    go = check(FILES - 8 * MIB, FILES - 8 * MIB, FILES, 8 * MIB, 0)
    assert not broken_reason(cache("resident", start, go))
    why = "the slice reclaims nothing that others are charged for"
    assert broken_reason(cache("resident", FULL, go)), why


REREAD = check(FILES, 30 * MIB, 30 * MIB, 0, 0)


@pytest.mark.parametrize(
    ("end", "more", "asked", "broken"),
    [
        (REREAD, {}, FILES, True),
        (REREAD, {}, None, False),
        (REREAD, {"least_resident_bytes": MIB}, None, True),
        # direct reads do not change the cache
        (check(FILES, 0, FILES, 0, 0), {}, FILES, False),
        (check(FILES, SPARE, SPARE, 0, 0), {}, FILES, False),
        # dropped when no longer needed
        (check(30 * MIB, 0, 0, 0, 0), {}, None, False),
        (check(30 * MIB, 0, 20 * MIB, 0, 0), {}, None, True),
        # the host was short of memory
        (check(FILES, 30 * MIB, 30 * MIB, 0, 30 * MIB), {}, FILES, False),
        # a tight cage reclaims its own pages
        (check(FILES, 4 * MIB, 60 * MIB, 56 * MIB, 0), {}, FILES, True),
    ],
)
def test_a_resident_file_that_had_to_be_read_again(
    end: Check, more: dict[str, int], asked: int | None, broken: bool
) -> None:
    reason = broken_reason(cache("resident", FULL, FULL, end, **more), asked)
    assert ("had to be read again" in reason) == bool(reason) == broken, reason


@pytest.mark.parametrize("requested", ["any", "cold"])
def test_an_unrequested_or_unchecked_state_holds(requested: str) -> None:
    unchecked = {"requested": requested, "file_bytes": FILES, "resident_bytes_before": 0}
    assert not broken_reason(unchecked, FILES)
    assert not broken_reason(cache("any", FULL, FULL, FULL))


@pytest.mark.parametrize(
    ("program", "end", "asked"),
    [
        ("pcread", END, FILES),
        ("pcscan-c", END, FILES),
        ("pcread", {}, None),
        ("pcwrite", END, None),
        ("fio", END, None),
        (None, END, None),
        ("pcread", END | {"checksum": None}, None),
        ("pcread", END | {"distinct_bytes": "all"}, None),
    ],
)
def test_only_bytes_that_were_read_count_as_requested(
    program: str | None, end: dict[str, Any], asked: int | None
) -> None:
    assert requested_bytes(program, end) == asked
