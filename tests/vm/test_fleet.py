"""Two one-CPU guests with different kernels as a fleet: one run, one report, and one of them killed
in the middle.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.errors import EXIT_INCOMPLETE, EXIT_OK
from pagecage.hosts.vm import guest
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.guest_client import read_guest
from pagecage.hosts.vm.vm_host import GuestOptions
from pagecage.model.record import Record, read_records
from pagecage.process import Process
from pagecage.verdicts.evaluate import evaluate
from tests.builders.command_line import CommandLine
from tests.builders.known import known

pytestmark = [pytest.mark.vm, pytest.mark.long]
GUESTS = {"vm": GuestOptions(None, 1), "old": GuestOptions("bookworm", 1)}
_SMOKE = ["run", "smoke", "--dataset", "smoke", "--host", "guests"]


@pytest.fixture(scope="module")
def guests() -> Iterator[None]:
    """Debian 13 and Debian 12, one processor each."""
    try:
        for name, making in GUESTS.items():
            guest.up(print, GuestCache.of_user(name), making)
        yield
    finally:
        for name in GUESTS:
            guest.down(print, GuestCache.of_user(name))


def records(line: CommandLine, name: str) -> list[Record]:
    folder = line.runs / f"latest-smoke@guests/hosts/guest-{name}"
    return list(read_records(folder / "records.jsonl"))


def answers(line: CommandLine, name: str) -> set[str]:
    return {record.trial_id for record in records(line, name) if record.is_final}


def shown(line: CommandLine) -> dict[str, list[dict[str, object]]]:
    process = line.start("show", "smoke@guests", "--json")
    out, printed = process.communicate(timeout=120)
    assert process.returncode == EXIT_OK, printed.decode()
    reported: dict[str, list[dict[str, object]]] = json.loads(out)
    return reported


def kill_guest(name: str) -> None:
    os.kill(known(read_guest(GuestCache.of_user(name))).pid, signal.SIGKILL)


def test_one_run_and_one_report_over_two_kernels(guests: None, tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    printed = line.succeed(*_SMOKE)
    kernels = {}
    for host in GUESTS:
        folder = line.runs / "latest-smoke@guests/hosts" / f"guest-{host}"
        assert len(answers(line, host)) == 4, printed
        for record in records(line, host):
            series = (folder / record.traces["sampler"]).read_text().splitlines()
            verdicts = evaluate(record, [json.loads(row) for row in series])
            assert {limit.verdict for limit in verdicts.limits} <= {"enforced"}, verdicts.limits
            assert verdicts.cache_state_reached.verdict == "reached"
        kernels[host] = json.loads(next((folder / "facts").iterdir()).read_text())["kernel"]
    assert kernels["old"].startswith("6.1.")
    assert kernels["vm"].startswith("6.12.")
    reported = {str(fact["name"]): fact for fact in shown(line)["facts"]}
    assert reported["kernel"]["differs"] is True
    assert reported["cpus"]["values"] == ["1", "1"]
    page = (line.runs / "latest-smoke@guests/report.html").read_text()
    assert kernels["old"] in page
    assert kernels["vm"] in page


def test_a_guest_killed_in_the_middle_is_gone_on_with(guests: None, tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    process: Process[bytes] = line.start(*_SMOKE)
    line.wait_until(
        lambda: (line.runs / "latest-smoke@guests").exists() and bool(answers(line, "old")), process
    )
    kill_guest("old")
    _, printed = process.communicate(timeout=900)
    assert process.returncode == EXIT_INCOMPLETE, printed.decode()
    assert "guest-old: " in printed.decode()
    assert "(lost: " in printed.decode()
    assert len(answers(line, "vm")) == 4, "the other one finishes"
    before = answers(line, "old")
    assert 0 < len(before) < 4
    [part] = [host for host in shown(line)["hosts"] if host["host"] == "guest-old"]
    assert (part["outcome"], part["answered"]) == ("lost", len(before))
    guest.up(print, GuestCache.of_user("old"), GUESTS["old"])
    line.succeed("run", "smoke", "--host", "guests", "--resume")
    assert len(answers(line, "old")) == 4
    assert len(records(line, "vm")) == 4, "nothing was asked of it again"
