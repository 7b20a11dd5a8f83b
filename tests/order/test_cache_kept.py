"""The cache state between preparation and the measured part, and other conditions."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent.programs import measured_part
from pagecage.agent.programs.command import HOME
from pagecage.agent.programs.measured_part import CacheChecks
from pagecage.linux.page_cache import measure_residency
from pagecage.model.json_codec import Json
from pagecage.model.record import Record
from pagecage.model.trial import CommandSpec, Dataset, Trial, Workload
from pagecage.units import MIB
from pagecage.verdicts.cache_state import judge_cache_state
from pagecage.verdicts.consistency import judge_consistency
from tests.builders.command_trials import MEMORY, bare_trial
from tests.builders.command_trials import carry_out as run_command
from tests.builders.known import known
from tests.builders.trial_runs import carry_out, install_fio
from tests.fake_host.machine import (
    DATASET,
    LIGHT,
    Machine,
    make_dataset,
    make_session,
    make_trial,
)

DATA = Dataset(8 * MIB)
IO_STAT = 'echo "$FAKE_MAJ_MIN rbytes=%d rios=9" >"$FAKE_SLICE/io.stat"'
CHARGED = 'printf "anon 0\\nfile %d\\n" >"$FAKE_SLICE/memory.stat"'
READS = 'cat "$FAKE_FILE" >/dev/null'
HONEST = "; ".join((READS, CHARGED % DATA.size_bytes, IO_STAT % DATA.size_bytes))
SERVES = "; echo serving; exec sleep 60"


@pytest.fixture
def data(machine: Machine, monkeypatch: pytest.MonkeyPatch, programs: None) -> Path:
    """Make a file that is larger than the tolerance, on a machine with two CPUs."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    path = make_dataset(machine.data, DATA)
    monkeypatch.setenv("FAKE_FILE", str(path))
    return path


def reads(*arguments: str, **changes: Any) -> Trial:
    """Return a trial of the fake workload, named as a workload whose `distinct_bytes` count."""
    workload = Workload("pcread", ("--file", "{file}", *arguments))
    usual = {"dataset": DATA, "cage": LIGHT, "collectors": ("vmtouch",)}
    return make_trial(**{"workload": workload, **usual, **changes})


def runs(script: str, **changes: Any) -> Trial:
    """Return a trial of a command that reads the file."""
    command = CommandSpec(is_literal=True, ready_when=changes.pop("ready_when", None))
    workload = Workload("sh", ("-c", script), "command", command=command)
    return reads(**{"workload": workload, "cage": MEMORY, **changes})


@pytest.fixture
def programs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the fake workloads, one of them as pcread."""
    folder = machine.root / "programs"
    folder.mkdir()
    source = Path(__file__).parent.parent / "fake_workloads"
    for path in source.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "pcread").symlink_to(source / "reads.py")
    monkeypatch.setattr("tests.fake_host.machine.WORKLOADS", folder)


def all_of_it() -> Any:
    """Match the file's size, less a few pages that proactive reclaim may take."""
    return pytest.approx(DATA.size_bytes, abs=MIB)


def refused(record: Record, reason: str) -> None:
    assert (record.outcome, record.phase) == ("not_prepared", "run")
    assert reason in (record.error or "")
    assert record.response == {}
    judged = judge_cache_state(record)
    assert judged.verdict == "not_reached"
    assert known(record.error) in judged.reason, "agent and verdict give the same reason"


def believed(record: Record) -> None:
    assert (record.outcome, record.error) == ("ok", None)
    assert judge_cache_state(record).verdict == "reached"
    assert record.response


def test_reads_by_the_trial_itself_are_accepted(machine: Machine, data: Path) -> None:
    record = carry_out(machine, reads())
    believed(record)
    checks = [getattr(record.cache, moment) for moment in ("start", "go", "end")]
    assert [check.resident_bytes for check in checks] == [0, 0, all_of_it()]
    assert [check.read_bytes for check in checks] == [0, 0, DATA.size_bytes]
    assert checks[-1].charged_bytes == DATA.size_bytes
    assert record.cache.came_bytes == all_of_it()


@pytest.mark.parametrize(
    ("moment", "reason", "is_started"),
    [
        ("start", "before the program started, another process had read", False),
        ("scope", "before `go`, another process had read", True),
    ],
)
def test_reads_by_another_process_before_go_stop_the_trial(
    machine: Machine, data: Path, moment: str, reason: str, is_started: bool
) -> None:
    machine.misbehave(READS=moment)
    record = carry_out(machine, reads())
    log = machine.log_lines()
    assert f"another process reads at {moment}" in log
    refused(record, reason)
    assert record.measured is None
    started = any(line.startswith("scope pagecage-run-r1_tight.1 ") for line in log)
    assert (started, "workload go" in log) == (is_started, False)
    assert machine.left() == []


@pytest.mark.parametrize("driver", ["systemd-scope", "systemd-service", "docker"])
def test_every_driver_detects_foreign_reads(machine: Machine, data: Path, driver: str) -> None:
    machine.misbehave(READS="start")
    refused(carry_out(machine, reads(driver=driver)), "before the program started")


def test_foreign_reads_during_the_run_are_found_at_the_end(machine: Machine, data: Path) -> None:
    """The workload is correct, but another process has read the file."""
    machine.misbehave(READS="go")
    good = Workload("good.py", ("--file", "{file}"))
    record = carry_out(machine, reads("--direct", workload=good))
    refused(record, "of the files, since it is charged for these pages")
    assert record.measured is not None
    assert known(record.workload.end)["checksum_ok"] is True
    assert machine.left() == []


def test_pages_read_and_dropped_by_another_process_are_missed(machine: Machine, data: Path) -> None:
    """At the end no page is left in the cache, and the slice has read less than the workload."""
    workload = Workload("pcread", ("--file", "{file}", "--direct", "--short"))
    record = carry_out(machine, reads(workload=workload))
    refused(record, "that the workload read were not in the page cache")


@pytest.mark.parametrize("serves", [{}, {"ready_when": "serving"}], ids=["command", "service"])
@pytest.mark.parametrize(
    ("moment", "script", "reason"),
    [
        ("start", HONEST, "before the program started"),
        ("scope", HONEST, "before `go`"),
        ("", READS, "since it is charged for these pages"),
        ("", HONEST, None),
        ("", "; ".join((READS, CHARGED % DATA.size_bytes)), "the kernel has lost counts of reads"),
    ],
)
def test_a_command_and_a_service(
    machine: Machine,
    data: Path,
    moment: str,
    script: str,
    reason: str | None,
    serves: dict[str, str],
) -> None:
    """Commands report no figures, so the check uses the pages' charges and the slice's reads."""
    machine.misbehave(READS=moment)
    record = carry_out(machine, runs(script + (SERVES if serves else ""), **serves))
    if reason is None:
        believed(record)
    else:
        refused(record, reason)
    assert machine.left() == []


def test_fio_is_checked_before_it_starts(
    machine: Machine, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_fio(machine, monkeypatch)
    workload = Workload("fio", ("ioengine=mmap", "rw=randread"), "fio")
    fio = reads(workload=workload, collectors=())
    honest = carry_out(machine, fio)
    believed(honest)
    assert honest.cache.go == honest.cache.start
    monkeypatch.setenv("FAKE_READS", "start")
    refused(carry_out(machine, fio), "before the program started")


def test_a_file_that_is_written_or_has_no_extents_needs_no_disk(
    machine: Machine, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written pages and holes enter the page cache without a read, charged to the slice."""
    writes = 'dd if=/dev/urandom of="$FAKE_FILE" bs=1M count=8 conv=notrunc status=none'
    believed(carry_out(machine, runs(f"{writes}; {CHARGED % DATA.size_bytes}")))
    monkeypatch.setattr(measured_part, "on_disk_bytes", lambda _: 0)
    believed(carry_out(machine, runs("; ".join((READS, CHARGED % DATA.size_bytes)))))


def test_read_ahead_in_progress_need_not_be_counted_yet(
    machine: Machine, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read-ahead that waits for the limit has its pages, but is counted later."""
    monkeypatch.setattr(measured_part, "uptodate_bytes", lambda _: MIB)
    record = carry_out(machine, runs("; ".join((READS, CHARGED % DATA.size_bytes))))
    believed(record)
    assert record.cache.came_bytes == MIB


def test_a_command_may_remove_its_file(machine: Machine, data: Path) -> None:
    record = carry_out(machine, runs(HONEST + '; rm "$FAKE_FILE"', collectors=()))
    believed(record)
    assert record.cache.resident_bytes_after == 0


def test_state_any_is_not_checked(machine: Machine, data: Path) -> None:
    machine.misbehave(READS="start go")
    record = carry_out(machine, reads(cache="any"))
    assert record.outcome == "ok"
    assert "start" not in record.cache.present


@pytest.mark.parametrize(
    ("moment", "reason"),
    [
        ("start", "of the files left the page cache before the program started"),
        ("scope", "of the files left the page cache before `go`"),
        ("go", "of the files had to be read again"),
    ],
)
def test_a_resident_file_that_another_process_drops(
    machine: Machine, data: Path, moment: str, reason: str
) -> None:
    believed(carry_out(machine, reads("--direct", cache="resident")))
    machine.misbehave(DROPS=moment)
    refused(carry_out(machine, reads(cache="resident")), reason)
    assert machine.left() == []


def test_a_resident_file_of_a_command(
    machine: Machine, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command may drop the file at its end, but must not read it again."""
    drops = 'dd "if=$FAKE_FILE" iflag=nocache count=0 status=none'
    believed(carry_out(machine, runs(drops, cache="resident")))
    again = IO_STAT % DATA.size_bytes
    refused(carry_out(machine, runs(f"{drops}; {again}", cache="resident")), "had to be read again")
    whole = f"{drops}; sleep 0.4; {READS}; {again}"
    whole_by_the_end = carry_out(machine, runs(whole, cache="resident"))
    refused(whole_by_the_end, "had to be read again")
    assert known(whole_by_the_end.cache.end).resident_bytes == all_of_it()


def test_a_workload_must_report_the_pages_that_it_drops(machine: Machine, data: Path) -> None:
    believed(carry_out(machine, reads("--drops", "--owns-up", cache="resident")))
    record = carry_out(machine, reads("--drops", cache="resident"))
    refused(record, "left the page cache before `go`")
    assert measure_residency(data).is_empty


def dataset(machine: Machine) -> str:
    return str(machine.data / DATASET.file_name)


def test_each_trial_has_an_empty_home_and_none_is_left(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    seen = machine.root / "seen"
    script = f'echo "$HOME $(ls -A "$HOME") $XDG_CACHE_HOME" >>{seen}; touch "$HOME/cache"'
    (machine.data / HOME).mkdir()
    (machine.data / HOME / "of-a-killed-agent").touch()
    for _ in range(2):
        record = run_command(machine, script, conditions=("fresh-home",))
        assert (record.outcome, record.workload.home) == ("ok", "fresh")
    assert seen.read_text().splitlines() == [f"{machine.data / HOME}  "] * 2
    assert record.conditions == ("fresh-home",)
    assert not (machine.data / HOME).exists()


def test_without_the_condition_the_home_is_inherited(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/inherited")
    record = run_command(machine, f'echo "$HOME" >{machine.root}/seen')
    assert (machine.root / "seen").read_text() == "/inherited\n"
    assert (record.workload.home, record.conditions) == ("inherited", ())


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("printf abc", b"abc"),
        ("printf abc; exit 3", b"abc"),
        ("true", b""),
        ("head -c 300000 /dev/zero; echo an error >&2", bytes(300_000)),
    ],
)
def test_the_record_has_size_and_hash_of_the_output(
    machine: Machine, script: str, printed: bytes
) -> None:
    sizes = dict.fromkeys(("bytes", "hashed_bytes"), len(printed))
    expected = {**sizes, "sha256": hashlib.sha256(printed).hexdigest()}
    assert run_command(machine, script).exit.stdout == expected


def test_a_program_that_serves_is_ended_so_its_output_is_not_compared(machine: Machine) -> None:
    record = run_command(machine, "echo ready; exec sleep 60", ready_when="ready")
    assert (record.outcome, record.exit.stdout) == ("ok", None)


def test_a_queue_setting_that_is_changed_meanwhile_is_a_contradiction(machine: Machine) -> None:
    queue = machine.sys / "block/fakedisk/queue"
    record = run_command(machine, f"sleep 0.1; echo 4096 >{queue}/read_ahead_kb")
    found = judge_consistency(record, ())
    assert found.verdict == "contradictory"
    assert "read_ahead_kb of fakedisk was 128 before the measured part and 4096" in found.reason
    assert judge_consistency(run_command(machine, "sleep 0.1"), ()).verdict == "consistent"


def test_metadata_are_dropped_after_the_last_check_of_the_files(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop, checked = machine.root / "drop", []
    check = CacheChecks.at_go

    def at_go(checks: CacheChecks, evicted_bytes: int = 0) -> None:
        check(checks, evicted_bytes)
        checked.append(drop.exists())

    monkeypatch.setattr(CacheChecks, "at_go", at_go)
    monkeypatch.setattr(measured_part, "DROP", drop)
    monkeypatch.setattr(measured_part, "DEV", machine.root)
    (machine.root / "fakedisk").touch()
    cold: Json = {"cache": "cold", "data_paths": (dataset(machine),)}
    record = run_command(machine, f"test -s {drop}", conditions=("cold-metadata",), **cold)
    assert (record.outcome, record.cache.metadata) == ("ok", "cold")
    assert (checked, drop.read_text()) == ([False], "2")
    drop.unlink()
    record = run_command(machine, f"test ! -e {drop}", **cold)
    assert (record.outcome, record.cache.metadata) == ("ok", "warm")
    assert run_command(machine, "true").cache.metadata == "unknown"


def test_metadata_that_may_not_be_dropped_start_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_part, "DROP", machine.root / "missing/drop_caches")
    record = run_command(machine, f"touch {machine.root}/ran", conditions=("cold-metadata",))
    assert record.outcome == "requirement_missed"
    [missed] = record.missed_requirements
    assert missed.requirement == "metadata"
    assert "missing/drop_caches: No such file" in missed.reason
    assert not (machine.root / "ran").exists()


def test_the_record_has_the_settings_of_machine_and_process(machine: Machine) -> None:
    record = run_command(machine, "true")
    before = record.machine.before or {}
    lines = Path("/proc/self/status").read_text().splitlines()
    [own] = [line.split()[1] for line in lines if line.startswith("Cpus_allowed_list")]
    assert (before["affinity"], before["nice"]) == (own, os.nice(0))
    assert set(record.machine.after or {}) <= set(before)


def test_the_record_has_the_cpu_time_around_the_trial(machine: Machine) -> None:
    record = run_command(machine, "true")
    around, measured = known(record.counters.around), known(record.measured)
    before, after = around["before"], around["after"]
    assert after["monotonic_seconds"] - before["monotonic_seconds"] > measured.seconds
    assert after["agent_cpu_usec"] > before["agent_cpu_usec"]
    assert after["stat"]["user"] >= before["stat"]["user"]


@pytest.mark.parametrize("cache", ["none", "outer page cache"])
def test_a_cache_below_the_guests_disk_is_told(machine: Machine, cache: str) -> None:
    """Only the controller knows it. A simulated volume reads its file through that page cache."""
    command = CommandSpec(is_literal=True, data_paths=(dataset(machine),))
    workload = Workload("true", (), "command", command=command)
    trial = bare_trial(workload, cache="cold")
    session = make_session(machine, io.BytesIO(), trial)
    session.request.machine["details"]["data_cache"] = cache
    record = carry_out(machine, trial, session)
    assert (record.outcome, record.error) == ("ok", None)
    kinds = [layer["kind"] for layer in record.device.caches_below or ()]
    assert kinds == ([] if cache == "none" else [cache])
    told = judge_cache_state(record).reason
    assert (f"cold above fakedisk ({cache}), whose cache is not known" in told) == bool(kinds)


def test_traces_are_in_a_folder_of_this_account_alone(machine: Machine) -> None:
    """Others may pass through the spool, where a server's data may be."""
    assert run_command(machine, "true").outcome == "ok"
    assert (machine.spool / "trials").stat().st_mode & 0o777 == 0o700
