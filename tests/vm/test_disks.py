"""Data and log on disks of their own in the guest: each limit is the kernel's, and is held."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.model.record import Record
from pagecage.verdicts.counters import io_difference, on_disk
from tests.builders.command_line import CommandLine, verdicts

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.timeout(900)]
READS, WRITES, SECONDS = 200, 50, 15  # cgroups/log-apart.toml
WITHIN = 0.05
FIO = (
    *("--thread", "--bs=4k", "--direct=1", "--time_based", f"--runtime={SECONDS}"),
    *("--name=data", "--filename=data", "--filesize=16M", "--rw=randread"),
    *("--ioengine=libaio", "--iodepth=16"),
    # The log's file has its blocks already: else each write would commit the file system's journal.
    *("--name=log", "--filename={disk.wal}/log", "--size=4M", "--overwrite=1", "--rw=write"),
    *("--sync=dsync", "--ioengine=libaio", "--iodepth=4"),
)


def replayed(runs: Path, *options: str) -> CommandLine:
    made = CommandLine(runs, "replay-fio")
    words = ("--no-control", "--host", "vm", *options, "--", "fio", *FIO)
    made.succeed("replay", "log-apart", *words)
    return made


def rates(record: Record) -> tuple[float, float]:
    """Return reads from the data disk and writes to the log's per second of fio's run time."""
    reads, writes = io_difference(record, "rios"), io_difference(on_disk(record, "wal"), "wios")
    return (reads or 0.0) / SECONDS, (writes or 0.0) / SECONDS


@pytest.fixture(scope="module")
def apart_and_beside(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return replayed(tmp_path_factory.mktemp("disks"), "--cage", "iops-500")


@pytest.fixture(scope="module")
def apart(apart_and_beside: CommandLine) -> Record:
    return in_cage(apart_and_beside, "log-apart")


def in_cage(made: CommandLine, cage: str) -> Record:
    [record] = [one for one in made.records() if one.cage.name == cage]
    assert (record.outcome, record.error) == ("ok", None)
    return record


def test_the_kernel_has_a_limit_for_each_disk(apart: Record) -> None:
    log = apart.disks["wal"]
    assert log.device.maj_min != apart.device.maj_min
    assert (apart.cage.read_back or {})["io.max.riops"] == str(READS)
    assert (apart.cage.read_back or {})["io.max.wiops"] == "max"
    assert log.cage.read_back == {
        **dict.fromkeys(("io.max.rbps", "io.max.riops", "io.max.wbps"), "max"),
        "io.max.wiops": str(WRITES),
    }


def test_each_limit_is_held(apart: Record) -> None:
    reads, writes = rates(apart)
    print(f"{reads:.1f} reads a second of {READS}, {writes:.1f} writes to the log of {WRITES}")
    assert reads == pytest.approx(READS, rel=WITHIN)
    assert writes == pytest.approx(WRITES, rel=WITHIN)


def test_each_limit_has_a_verdict_and_the_diagnosis_names_the_disk(
    apart: Record, apart_and_beside: CommandLine
) -> None:
    judged = verdicts(apart_and_beside, apart)
    words = {(limit.disk, limit.property): limit.verdict for limit in judged.limits}
    assert words == {
        (None, "IOReadIOPSMax"): "enforced",
        (None, "MemorySwapMax"): "enforced",
        ("wal", "IOWriteIOPSMax"): "enforced",
    }
    print(judged.diagnosis.sentence)
    assert f"The {WRITES} IOPS cap on writes to the wal disk" in judged.diagnosis.sentence
    assert f"The {READS} IOPS cap on reads from the data disk" in judged.diagnosis.sentence


def test_a_cage_of_one_disk_has_the_log_beside_the_data(apart_and_beside: CommandLine) -> None:
    record = in_cage(apart_and_beside, "iops-500")
    assert not record.disks
    assert any(word.startswith("--filename=/data/") for word in record.workload.argv or ())
    assert (io_difference(record, "wios") or 0) > 0


def test_each_disk_is_a_volume_of_its_own(tmp_path: Path) -> None:
    made = replayed(tmp_path, "--enforced-by", "volume")
    record = in_cage(made, "log-apart")
    log, judged = record.disks["wal"], verdicts(made, record)
    for external, limit in ((record.cage.external, READS), (log.cage.external, WRITES)):
        assert external is not None
        assert [one["per_second"] for one in external["model"]["limits"]] == [limit]
        [counted] = external["account"]["pcvolume"]["limits"]
        seconds = external["account"]["pcvolume"]["seconds"]
        print(f"by its account: {counted['used'] / seconds:.1f} a second of {limit}")
        assert 0 < counted["used"] <= limit * seconds * 1.01
    assert {limit.verdict for limit in judged.limits} == {"enforced"}, judged.limits
    print(judged.diagnosis.sentence)
    assert judged.diagnosis.others["wal"].write.iops_cap == pytest.approx(WRITES)
