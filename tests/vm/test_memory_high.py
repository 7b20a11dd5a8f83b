"""MemoryHigh on a real kernel: set by systemd, or beside Docker's own limits on the slice."""

from __future__ import annotations

import pytest

from pagecage.model.cage import Cage
from pagecage.model.record import Record
from pagecage.model.trial import CommandSpec, Workload
from pagecage.units import MIB
from pagecage.verdicts.evaluate import evaluate
from tests.builders.guest_runs import one_trial, run_in_guest

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.timeout(900)]
_HIGH_BYTES = 24 * MIB
_FILL = "b = bytearray(b'1') * (26 << 20); print(len(b))"
_DRIVERS = ["systemd-scope", pytest.param("docker-api", marks=pytest.mark.long)]


@pytest.fixture(scope="module", params=_DRIVERS)
def record(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A program that needs a little more memory than the limit from which it is throttled."""
    fill = ("-I", "-c", _FILL)
    trial = one_trial(
        request.param.replace("-", "_"),
        workload=Workload("python3", fill, "command", command=CommandSpec(is_literal=True)),
        cage=Cage("throttled", {"MemoryHigh": _HIGH_BYTES, "MemorySwapMax": 0}),
        timeout_seconds=120.0,
        driver=request.param,
    )
    folder = run_in_guest(tmp_path_factory.mktemp("throttled"), "throttled-vm", trial)
    [found] = folder.records()
    return found


def test_the_program_ends_by_itself_above_the_limit(record: Record) -> None:
    """The kernel throttles and never kills, where MemoryMax would."""
    assert (record.outcome, record.error) == ("ok", None)
    cgroup = record.counters.totals["cgroup"]
    assert cgroup["memory.events"]["high"] > 0
    assert cgroup["memory.events"]["oom_kill"] == 0
    assert cgroup["memory.peak"] > _HIGH_BYTES


def test_the_limit_is_read_back_and_proven(record: Record) -> None:
    assert record.cage.read_back["memory.high"] == str(_HIGH_BYTES)
    limits = {limit.property: limit for limit in evaluate(record).limits}
    assert limits["MemoryHigh"].verdict == "enforced", limits["MemoryHigh"].reason


def test_the_diagnosis_names_it(record: Record) -> None:
    found = evaluate(record)
    assert found.binding_limit.verdict == "memory", found.binding_limit
    assert found.diagnosis.sentence.startswith("The MemoryHigh of 24 MiB held the program back")
