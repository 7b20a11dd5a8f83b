"""Reads and writes that share a limit at the provider: the guest's kernel limits both together."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.model.record import Record
from pagecage.verdicts.counters import io_difference
from pagecage.verdicts.evaluate import Verdicts
from tests.builders.command_line import CommandLine, verdicts
from tests.builders.known import known

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(900)]
LIMIT, SECONDS = 300, 20  # cgroups/aws-gp3-tenth.toml
BOTH_WAYS = (
    *("--name=both", "--thread", "--filename=both", "--filesize=16M", "--bs=4k", "--direct=1"),
    *("--ioengine=libaio", "--iodepth=16", "--time_based", f"--runtime={SECONDS}"),
)


def measured(runs: Path, cage: str, *how: str) -> tuple[Record, Verdicts]:
    made = CommandLine(runs, "replay-fio")
    made.succeed("replay", cage, "--no-control", "--host", "vm", "--", "fio", *BOTH_WAYS, *how)
    [record] = made.records()
    return record, verdicts(made, record)


def rates(record: Record) -> tuple[float, float]:
    """Return reads and writes per second of fio's run time, without its set-up."""
    reads, writes = ((io_difference(record, key) or 0.0) / SECONDS for key in ("rios", "wios"))
    return reads, writes


@pytest.mark.parametrize("share", [50, 80])
def test_both_together_keep_to_the_limit_and_fill_it(tmp_path: Path, share: int) -> None:
    record, judged = measured(tmp_path, "aws-gp3-tenth", "--rw=randrw", f"--rwmixread={share}")
    reads, writes = rates(record)
    print(
        f"{reads:.0f} reads and {writes:.0f} writes a second of {LIMIT}:"
        f" {judged.diagnosis.sentence}"
    )
    assert 0.8 * LIMIT < reads + writes <= 1.05 * LIMIT
    assert {limit.verdict for limit in judged.limits} == {"enforced"}, judged.limits
    states = {one["aspect"]: one["state"] for one in known(record.cage.fidelity)}
    assert states["combined"] == "exact"


def test_apart_they_get_twice_as_much(tmp_path: Path) -> None:
    """The same cage without a shared limit. It shows that the test above can fail."""
    record, _ = measured(tmp_path, "gcp-pd-balanced-tenth", "--rw=randrw")
    assert sum(rates(record)) > 1.5 * 360
