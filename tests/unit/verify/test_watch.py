"""Limits that bound, from counters of a few seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pagecage.linux.cgroup import Cgroup
from pagecage.verify import verification
from pagecage.verify.comparison import LimitInForce
from pagecage.verify.main import lines
from pagecage.verify.target import Subject
from pagecage.verify.verification import LimitUse, Snapshot, summary, verify, watch
from tests.builders.verified import EVERY_HIERARCHY, SLICE, VDB, VerifiedMachine

OWN, ABOVE = (Cgroup(unified=Path("/cgroup", name)) for name in ("above/own", "above"))
WINDOWS = 20


def limit(name: str, value: float, cgroup: Cgroup = OWN) -> LimitInForce:
    disk = VDB if name.startswith("IO") else None
    return LimitInForce(name, value, cgroup, Path(str(cgroup), "file"), disk)


def counted(at: float, **per_second: float) -> dict[str, Any]:
    """Return counters that grew by these rates since 0."""

    def n(name: str) -> int:
        return round(at * per_second.get(name, 0))

    kinds = ("io", "memory", "cpu")
    waits = {f"{kind}.pressure": {"some": {"total": n(f"{kind}_wait_us")}} for kind in kinds}
    return {
        "io.stat": {VDB: {key: n(key) for key in ("rbytes", "rios", "wbytes", "wios")}},
        "memory.stat": {"workingset_refault_file": n("refaults")},
        "memory.events": {"max": n("max"), "high": n("high"), "oom_kill": n("kills")},
        "memory.events.local": {"max": n("max"), "high": n("high")},
        "memory.swap.events": {"max": n("swap_max")},
        "cpu.stat": {
            "nr_periods": n("periods"),
            "nr_throttled": n("throttled"),
            "throttled_usec": n("throttled_us"),
        },
        **waits,
    }


def taken(own: dict[str, float], above: dict[str, float] | None = None) -> Iterator[Snapshot]:
    for number in range(WINDOWS + 1):
        at = number / 2
        shared = counted(at, **(own if above is None else above))
        yield Snapshot(at, {OWN: counted(at, **own), ABOVE: shared})


def use_of(
    one: LimitInForce, own: dict[str, float], above: dict[str, float] | None = None
) -> LimitUse:
    found = summary(OWN, [one], list(taken(own, above)))
    assert found.seconds == WINDOWS / 2
    return found.uses[0]


@pytest.mark.parametrize(
    ("one", "rates", "bound"),
    [
        (limit("IOReadIOPSMax", 500), {"rios": 490}, True),
        (limit("IOReadIOPSMax", 500), {"rios": 350, "io_wait_us": 9e5}, True),
        (limit("IOReadIOPSMax", 500), {"rios": 350}, False),
        (limit("IOReadIOPSMax", 500), {"wios": 490}, False),
        (limit("IOReadIOPSMax", 38), {"rios": 30}, True),
        (limit("IOReadIOPSMax", 30), {"rios": 24}, False),
        (limit("IOWriteBandwidthMax", 20_000_000), {"wbytes": 19_900_000}, True),
        (limit("MemoryMax", 2**30), {"max": 50, "memory_wait_us": 6e5}, True),
        (limit("MemoryMax", 2**30), {"max": 50, "rbytes": 4096e3, "refaults": 900}, True),
        (limit("MemoryMax", 2**30), {"max": 50, "rbytes": 4096e3, "refaults": 9}, False),
        (limit("MemoryMax", 2**30), {"memory_wait_us": 6e5}, False),
        (limit("MemoryHigh", 2**30), {"high": 50, "memory_wait_us": 6e5}, True),
        (limit("MemoryHigh", 2**30), {"max": 50, "memory_wait_us": 6e5}, False),
        (limit("MemorySwapMax", 0), {"swap_max": 4}, True),
        (limit("MemorySwapMax", 0), {"max": 4}, False),
        (limit("CPUQuota", 50), {"throttled": 9, "periods": 10, "throttled_us": 4e5}, True),
        (limit("CPUQuota", 50), {"throttled": 1, "periods": 10, "throttled_us": 4e4}, False),
    ],
)
def test_each_limit_by_its_own_counters(
    one: LimitInForce, rates: dict[str, float], bound: bool
) -> None:
    assert use_of(one, rates).bound_seconds == (WINDOWS / 2 if bound else 0)


def test_figures() -> None:
    caps = use_of(limit("IOReadIOPSMax", 500), {"rios": 490})
    assert (caps.per_second, caps.used_share, caps.hits) == (490, 0.98, None)
    memory = use_of(limit("MemoryMax", 1), {"max": 7})
    assert (memory.hits, memory.used_share) == (70, None)
    cpu = use_of(limit("CPUQuota", 50), {"throttled": 3, "periods": 10})
    assert (cpu.hits, cpu.periods) == (30, 100)


def test_an_ancestors_limit_counts_what_all_below_it_use() -> None:
    shared = limit("IOReadIOPSMax", 500, ABOVE)
    assert use_of(shared, {"rios": 3}, {"rios": 490}).bound_seconds == WINDOWS / 2
    assert use_of(shared, {"rios": 3}, {"rios": 3}).bound_seconds == 0


def test_an_event_of_a_descendant_is_not_the_ancestors() -> None:
    """`memory.events` of the ancestor counts it, `memory.events.local` does not."""
    snapshots = [
        replace(
            one,
            counters={
                **one.counters,
                ABOVE: one.counters[ABOVE] | {"memory.events.local": {"max": 0}},
            },
        )
        for one in taken({"max": 50, "memory_wait_us": 6e5})
    ]
    assert summary(OWN, [limit("MemoryMax", 9, ABOVE)], snapshots).uses[0].bound_seconds == 0
    assert summary(OWN, [limit("MemoryMax", 9)], snapshots).uses[0].bound_seconds > 0


def test_a_disk_that_appears_while_it_is_watched() -> None:
    snapshots = list(taken({"rios": 490}))
    snapshots[0] = Snapshot(0, {OWN: {**snapshots[0].counters[OWN], "io.stat": {}}})
    found = summary(OWN, [limit("IOReadIOPSMax", 500)], snapshots)
    assert found.uses[0].per_second == 490


def test_counters_that_the_kernel_lacks() -> None:
    snapshots = [Snapshot(at, {OWN: {"io.stat": None, "cpu.stat": None}}) for at in (0.0, 0.5)]
    names = ("IOReadIOPSMax", "MemoryMax", "CPUQuota", "MemorySwapMax")
    found = summary(OWN, [limit(name, 5) for name in names], snapshots)
    assert [use.bound_seconds for use in found.uses] == [0, 0, 0, 0]
    assert found.waited == {"io": None, "memory": None, "cpu": None}


def test_shares_of_waiting_and_kills() -> None:
    found = summary(OWN, [], list(taken({"io_wait_us": 8e5, "cpu_wait_us": 1e5, "kills": 0.2})))
    assert found.waited == pytest.approx({"io": 0.8, "memory": 0, "cpu": 0.1})
    assert found.oom_kills == 2


def test_a_cgroup_that_ends_ends_the_watch(machine: VerifiedMachine) -> None:
    cgroup = machine.cgroup("a.service", (7,))

    def end(_: float) -> None:
        for file in cgroup.iterdir():
            file.unlink()
        cgroup.rmdir()

    found = watch(Cgroup(unified=cgroup), [], 3600, lambda: True, end)
    assert (found.ended, found.seconds) == (True, 0)


def test_a_process_of_the_real_root_is_watched(machine: VerifiedMachine) -> None:
    """No counter there is its own, and it has not ended."""
    machine.process(7, "/")
    found = verify(Subject(pid=7), 0.1, machine.kernel)
    assert (found.watched.ended, found.watched.seconds > 0) == (False, True)


@EVERY_HIERARCHY
def test_a_process_that_ends_is_a_note(
    machine: VerifiedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pid may belong to another process by then, which has another start time."""
    machine.cgroup(f"{SLICE}/a.service", (7,))
    stat = machine.kernel.proc / "7/stat"

    def start_again(_: float) -> None:
        stat.write_text(stat.read_text().replace(" 4711 ", " 4712 "))

    monkeypatch.setattr(verification, "watch", partial(watch, sleep=start_again))
    found = verify(Subject(pid=7), 3600, machine.kernel)
    assert found.watched.seconds < 60
    says = "The process 7 (postgres) ended while it was watched, after 0.0 s"
    assert found.notes[-1].startswith(says)


@EVERY_HIERARCHY
def test_the_counters_of_a_real_second(machine: VerifiedMachine) -> None:
    """The files are read again while the time passes."""
    cgroup = machine.cgroup(f"{SLICE}/a.service", (7,), memory__max="4096")
    (cgroup / "memory.events.local").write_text("low 0\nhigh 0\nmax 3\noom 0\n")
    found = verify(Subject(pid=7), 0.6, machine.kernel)
    page = list(lines(found))
    assert found.watched.seconds >= 0.6
    assert "  MemoryMax did not bind: met 0 times" in page
    assert "  no limit bound" in page
    waits = "  some task waited for: I/O 0 %, memory 0 %, a CPU 0 % of the time"
    assert (waits in page) is (machine.hierarchy != "v1")
