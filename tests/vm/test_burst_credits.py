"""Burst credits as the agent enforces them, beside QEMU's throttling with the same bucket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pagecage.hosts.vm.disks import plug
from pagecage.hosts.vm.qemu import QmpClient
from pagecage.model.cage import BurstCredits, Cage, CreditBucket, IoAccounting, filled
from pagecage.model.record import Record
from pagecage.model.trial import Dataset, Workload
from pagecage.verdicts.evaluate import evaluate
from tests.builders.guest_runs import one_trial, run_in_guest
from tests.builders.known import known

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(1800)]
BASE, BURST, CREDITS = 100, 1000, 18_000
DRAIN_SECONDS, REST_SECONDS, AGAIN_SECONDS = 30, 90, 20
WITHIN = 0.05
READ = (
    "fio --name=r --filename={file} --readonly --rw=randread --bs=4k --direct=1 --ioengine=libaio"
    " --iodepth=16"
)
TWICE = (
    f"{READ} --time_based --runtime={DRAIN_SECONDS}; sleep {REST_SECONDS}; "
    f"{READ} --time_based --runtime={AGAIN_SECONDS}"
)
LIMITS = {
    "iops-total": BASE,
    "iops-total-max": BURST,
    "iops-total-max-length": CREDITS // BURST,
    "iops-size": 262_144,
}
Series = list[Mapping[str, Any]]
Pair = tuple[tuple[Record, Series], tuple[Record, Series]]
"""The trial under pagecage's credits, and the one under QEMU's."""


class Throttling(QmpClient):
    """QEMU's monitor, which plugs in the data disk behind a throttle node."""

    def __init__(self, monitor: QmpClient) -> None:  # uses the connection of the other
        self._monitor = monitor

    def execute(self, command: str, **arguments: Any) -> Any:
        if command == "device_add":
            self._monitor.execute(
                "object-add", qom_type="throttle-group", id="bucket", limits=LIMITS
            )
            throttle = {"driver": "throttle", "throttle_group": "bucket", "file": "data"}
            self._monitor.execute("blockdev-add", node_name="throttled", **throttle)
            arguments["drive"] = "throttled"
        return self._monitor.execute(command, **arguments)


def run_trial(runs: Path, name: str, cage: Cage) -> tuple[Record, Series]:
    """Run one trial in the guest, and return its record and its series."""
    trial = one_trial(
        name,
        cage=cage,
        workload=Workload("sh", ("-c", TWICE), "command"),
        dataset=Dataset(64 * 1024 * 1024),
        timeout_seconds=600.0,
    )
    folder = run_in_guest(runs, f"{name}-burst-vm", trial)
    record = folder.last_records()[name]
    assert record.outcome == "ok", record.error
    rows = (folder.path / record.traces["sampler"]).read_text().splitlines()
    return record, [json.loads(row) for row in rows]


def reads(series: Series) -> list[tuple[float, int]]:
    return [(row["t"], row["io"].get("rios", 0)) for row in series]


def bursts(series: Series) -> list[list[tuple[float, int]]]:
    """Return the two stretches of reading, each as seconds and reads since its first read."""
    found: list[list[tuple[float, int]]] = []
    previous, last_moved = reads(series)[0], float("-inf")
    for t, count in reads(series):
        if count - previous[1] > 20:
            if t - last_moved > REST_SECONDS / 2:
                found.append([])
                start = previous
            last_moved = t
        if found:
            found[-1].append((t - start[0], count - start[1]))
        previous = (t, count)
    return found


def at(curve: list[tuple[float, int]], seconds: float) -> int:
    return next(count for t, count in curve if t >= seconds)


def drained_after(curve: list[tuple[float, int]]) -> float:
    """Return the moment from which a second has fewer reads than the mean of base and burst."""
    return next(t for t, count in curve if at(curve, t + 1) - count < (BASE + BURST) / 2)


def credits_left(series: Series) -> list[tuple[float, float]]:
    """Return the credits that the model has left, and the reads per second around that moment.

    On a busy machine the reader falls behind the burst rate, which the credits reflect.
    """
    bucket, found = filled(BASE, BURST, CREDITS, "full"), []
    counts = reads(series)
    for index in range(1, len(counts) - 10):
        (before, was), (now, count) = counts[index - 1 : index + 1]
        later, then = counts[index + 10]
        bucket = bucket.after(count - was, now - before)
        if counts[index + 1][1] > count:  # skip a second in which reading begins
            found.append((bucket.credits, (then - count) / (later - now)))
    return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("burst")
    burst = BurstCredits("full", iops=CreditBucket(BURST, CREDITS))
    caged = Cage(
        "caged",
        {"IOReadIOPSMax": BASE, "IOWriteIOPSMax": BASE},
        burst=burst,
        accounting=IoAccounting(None, None, True),
    )
    enforced = run_trial(folder, "caged", caged)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "pagecage.hosts.vm.disks.plug",
            lambda monitor, *given, **more: plug(Throttling(monitor), *given, **more),
        )
        throttled = run_trial(folder, "qemu", Cage("qemu", {}))
    return enforced, throttled


def test_drain_and_refill_agree_with_qemu(pair: Pair) -> None:
    (_, pagecage), (_, qemu) = pair
    (first, second), (first_qemu, second_qemu) = bursts(pagecage), bursts(qemu)
    print(f"drained after {drained_after(first):.2f} s, in QEMU {drained_after(first_qemu):.2f} s")
    for seconds in (5, 10, 15, 20, 25, 29):
        print(f"{seconds:3d} s: {at(first, seconds)} reads, in QEMU {at(first_qemu, seconds)}")
        assert at(first, seconds) == pytest.approx(at(first_qemu, seconds), rel=WITHIN)
    assert drained_after(first) == pytest.approx(drained_after(first_qemu), rel=WITHIN)
    print(f"after the rest {at(second, 19)} reads, in QEMU {at(second_qemu, 19)}")
    assert at(second, 19) == pytest.approx(at(second_qemu, 19), rel=WITHIN)


def test_both_agree_with_the_model(pair: Pair) -> None:
    for _, series in pair:
        first, _ = bursts(series)
        assert drained_after(first) == pytest.approx(CREDITS / (BURST - BASE), rel=WITHIN)
        assert at(first, 29) == pytest.approx(CREDITS + 29 * BASE, rel=WITHIN)
        left = credits_left(series)
        throttled = [left_over for left_over, rate in left if 0.9 * BASE <= rate <= 1.1 * BASE]
        print(f"credits: least {min(left)[0]:.0f}, most at the base {max(throttled):.0f}")
        assert min(left)[0] >= -WITHIN * CREDITS, "more went through than there were credits"
        assert len(throttled) > 50
        assert max(throttled) <= WITHIN * CREDITS, (
            "it was limited to the base while there were credits"
        )


def test_the_verdict_uses_the_caps_in_force(pair: Pair) -> None:
    record, series = pair[0]
    verdicts = evaluate(record, series)
    [limit] = [limit for limit in verdicts.limits if limit.property == "IOReadIOPSMax"]
    assert limit.verdict == "enforced", limit.reason
    assert "Burst credits ran out after" in verdicts.diagnosis.sentence
    assert known(record.cage.credits)["error"] is None
    assert known(record.cage.read_back)["io.max.riops"] == str(BASE)
