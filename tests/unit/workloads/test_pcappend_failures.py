"""pcappend where something fails: what it refuses, who dies, what is full."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.builders.pcappend import METHODS, Program, children, files_of, go


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--method", "telepathy"], "telepathy"),
        (["--bytes", "0"], "--bytes"),
        (["--bytes", "1..20"], "16 bytes"),
        (["--bytes", "200..100"], "--bytes"),
        (["--bytes", "1", "--procs", "256"], "255"),
        (["--procs", "0"], "--procs"),
        (["--procs", "2000"], "1024"),
        (["--ops", "many"], "--ops"),
        (["--ops", "99999999999999999999"], "--ops"),
        (["--ops", "17179869184G"], "--ops"),
        (["--fsync", "0"], "--fsync"),
        (["--fsync", "often"], "--fsync"),
        (["--rate", "-1"], "--rate"),
        (["--rate", "inf"], "--rate"),
        (["--max-seconds", "soon"], "--max-seconds"),
        (["--framing", "golden"], "golden"),
        (["--method", "pclog", "--window", "1000"], "log"),
        (["--colour", "red"], "--colour"),
        (["--depth"], "--depth"),
    ],
)
def test_refusals_are_one_sentence(pcappend: Program, words: list[str], says: str) -> None:
    done = pcappend.run("write", *words)
    assert (done.status, done.lines) == (2, []), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


def test_what_is_needed_is_asked_for(pcappend_binary: Path) -> None:
    done = subprocess.run([pcappend_binary, "--method", "write"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--dir" in done.stderr
    told = subprocess.run([pcappend_binary, "--help"], capture_output=True, text=True, check=True).stdout
    assert all(f"  {method} " in told for method in METHODS)


def test_a_directory_that_is_none_is_a_sentence(pcappend_binary: Path, tmp_path: Path) -> None:
    done = Program(pcappend_binary, tmp_path / "nowhere").run("write")
    assert (done.status, done.lines, len(done.stderr.splitlines())) == (1, [], 1)


@pytest.mark.parametrize("moment", ["before go", "after go"])
@pytest.mark.parametrize("method", ["write", "pclog", "mapped-mutex", "mapped-semaphore", "mapped-futex"])
def test_a_killed_writer_is_a_sentence_and_no_hang(pcappend: Program, method: str, moment: str) -> None:
    started = pcappend.start(method, "--ops", "1M", "--bytes", 16)
    members = children(started.pid)
    if moment == "before go":
        os.kill(members[1], signal.SIGKILL)
        go(started)
    else:
        go(started)
        time.sleep(0.02)
        os.kill(members[1], signal.SIGKILL)
    out, said = started.communicate(timeout=60)
    assert started.returncode == 1, out
    assert "killed by signal 9" in said
    assert not [member for member in members if Path(f"/proc/{member}").exists()], "the others must not be left behind"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_takes_everything_with_it(pcappend: Program, number: signal.Signals) -> None:
    started = pcappend.start("pclog", "--ops", "1G")
    members = children(started.pid)
    go(started)
    time.sleep(0.05)
    started.send_signal(number)
    started.communicate(timeout=60)
    assert started.returncode == -number
    assert not [member for member in members if Path(f"/proc/{member}").exists()]


@pytest.mark.parametrize("method", ["write", "writev", "fwrite", "batch", "handoff", "reserve-pwrite", "aio", "uring"])
def test_a_full_disk_is_counted(pcappend: Program, method: str) -> None:
    done = pcappend.run(method, "--procs", 2, "--ops", 1000, "--bytes", 1000, before=files_of(1_500_000))
    assert done.status == 1
    assert done.end["checksum_ok"] is False
    assert done.response["file_bytes"] <= 1_500_000
    assert 0 < done.response["records"] <= 1500
    assert done.response["lost_records"] == 2000 - done.response["records"]
    assert set(done.end["errors"]) == {"EFBIG"}


def test_a_log_that_cannot_grow_is_counted(pcappend: Program) -> None:
    words = ("--procs", 2, "--ops", 1000, "--bytes", 1000, "--window", "64K", "--growth-bytes", "64K")
    done = pcappend.run("pclog", *words, before=files_of(1_000_000))
    assert done.status == 1
    assert done.end["checksum_ok"] is False
    assert done.response["lost_records"] + done.response["records"] == 2000
    assert done.response["records"] > 500
    assert done.response["failed_calls"] == done.response["lost_records"]


def test_a_mapping_that_finds_no_room_is_a_sentence(pcappend: Program) -> None:
    done = pcappend.run("mapped-atomic", before=files_of(1_000_000))
    assert (done.status, done.lines, len(done.stderr.splitlines())) == (1, [], 1)


def test_many_that_fail_say_it_once(pcappend: Program) -> None:
    done = pcappend.run("handoff", before=files_of(100_000))  # its rings are files in memory
    assert (done.status, done.lines, len(done.stderr.splitlines())) == (1, [], 1)
    assert "no memory" in done.stderr
