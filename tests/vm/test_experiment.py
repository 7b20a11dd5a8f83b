"""A run by its command line on real limits, for root and for an ordinary user; and its ways to
die.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.guest_client import read_guest
from tests.builders.command_line import _LONGEST_SECONDS, CommandLine, verdicts
from tests.builders.known import known
from tests.builders.waiting import wait_until

pytestmark = pytest.mark.vm
_SMOKE = ["run", "smoke", "--dataset", "smoke", "--host", "vm"]


@pytest.fixture(scope="module", params=["root", pytest.param("bench", marks=pytest.mark.slow)])
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """One whole run: by the system's systemd, and by an ordinary user's own."""
    runs = tmp_path_factory.mktemp(request.param)
    command_line = CommandLine(runs, PAGECAGE_VM_USER=request.param)
    command_line.succeed(*_SMOKE)
    return command_line


def test_every_trial_has_its_answer_and_every_collector_recorded(done: CommandLine) -> None:
    records = done.records()
    assert sorted(r.outcome for r in records) == ["ok"] * 4, [
        (r.trial_id, r.error) for r in records
    ]
    root = known(records[0].cage.slice).startswith("/sys/fs/cgroup/pagecage.slice/")
    for record in records:
        states = {name: entry["status"] for name, entry in record.collectors.items()}
        expected = dict.fromkeys(("sampler", "iostat", "sar", "vmtouch"), "ok")
        assert states == {**expected, "bpftrace": "ok" if root else "missing"}, record.collectors
        assert record.workload.checksum_ok is (
            True if record.response["covered_fraction"] == 1 else None
        )


def test_the_limits_bit_and_the_cache_was_cold(done: CommandLine) -> None:
    for record in done.records():
        judged = verdicts(done, record)
        wanted = {"MemoryMax", "MemorySwapMax", "IOReadBandwidthMax", "IOReadIOPSMax"}
        caged = record.treatment["cage"] == "smoke"
        assert {limit.property for limit in judged.limits} == (wanted if caged else set())
        assert {limit.verdict for limit in judged.limits} <= {"enforced"}, judged.limits
        assert judged.cache_state_reached.verdict == "reached"


def test_random_reads_in_the_cage_are_amplified_by_the_readahead(done: CommandLine) -> None:
    caged = {
        record.treatment["pattern"]: known(record.response["amplification"])
        for record in done.records()
        if record.treatment["cage"] == "smoke"
    }
    assert 20 < caged["random"] <= 33
    assert caged["sequential"] == pytest.approx(1.0, abs=0.1)


def test_the_report_is_one_page_that_loads_nothing(done: CommandLine) -> None:
    page = (done.folder() / "report.html").read_text()
    assert "Is every kind of limit enforced on this host?" in page
    for loading in ('src="http', "src='http", 'href="http://', "@import", "url(http"):
        assert loading not in page


def test_the_run_left_no_guest(done: CommandLine) -> None:
    assert read_guest(GuestCache.of_user()) is None


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_recorded_and_resume_finishes(tmp_path: Path) -> None:
    command_line = CommandLine(tmp_path)
    process = command_line.start(*_SMOKE)
    command_line.wait_until(lambda: (tmp_path / "latest-smoke/records.jsonl").exists(), process)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=_LONGEST_SECONDS)
    assert process.returncode == 130, printed.decode()
    assert "Traceback" not in printed.decode()
    kept = command_line.every_attempt()
    assert {r.outcome for r in kept} <= {"ok", "interrupted"}
    command_line.succeed("run", "smoke", "--resume")
    assert command_line.every_attempt()[: len(kept)] == kept
    assert sum(r.outcome == "ok" for r in command_line.records()) == 4


@pytest.mark.long
def test_killing_controller_and_guest_leaves_a_run_to_finish(tmp_path: Path) -> None:
    """kill -9 of the controller also ends the guest. In the resumed run the guest dies in the
    middle.
    """
    command_line = CommandLine(tmp_path)
    process = command_line.start(*_SMOKE)
    command_line.wait_until(lambda: (tmp_path / "latest-smoke/records.jsonl").exists(), process)
    guest = known(read_guest(GuestCache.of_user()))
    process.kill()
    process.communicate()
    line = Path(f"/proc/{guest.pid}/cmdline")
    wait_until(lambda: not line.exists() or not line.read_bytes(), 20)
    kept = command_line.every_attempt()
    resumed = command_line.start("run", "smoke", "--resume")
    command_line.wait_until(lambda: _other_guest(guest.pid) is not None, resumed)
    command_line.wait_until(lambda: len(command_line.every_attempt()) > len(kept), resumed)
    os.kill(known(_other_guest(guest.pid)), signal.SIGKILL)
    _, printed = resumed.communicate(timeout=_LONGEST_SECONDS)
    assert resumed.returncode == 0, printed.decode()
    assert sum(r.outcome == "ok" for r in command_line.records()) == 4
    assert read_guest(GuestCache.of_user()) is None


def _other_guest(pid: int) -> int | None:
    guest = read_guest(GuestCache.of_user())
    return guest.pid if guest is not None and guest.pid != pid else None
