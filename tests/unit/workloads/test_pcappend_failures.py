"""Tests of pcappend's failures: invalid arguments, killed processes, full disks."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from pagecage.process import run
from tests.builders.pcappend import METHODS, Program, children, files_of, go


@pytest.mark.parametrize(
    ("words", "mentioned"),
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
def test_refusals_are_one_sentence(pcappend: Program, words: list[str], mentioned: str) -> None:
    done = pcappend.run("write", *words)
    assert (done.status, done.lines) == (2, []), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert mentioned in done.stderr


def test_missing_options_are_named(pcappend_binary: Path) -> None:
    done = run([pcappend_binary, "--method", "write"], check=False)
    assert done.status == 2
    assert "--dir" in done.stderr
    text = run([pcappend_binary, "--help"]).stdout
    assert all(f"  {method} " in text for method in METHODS)


def test_a_missing_directory_is_one_sentence(pcappend_binary: Path, tmp_path: Path) -> None:
    done = Program(pcappend_binary, tmp_path / "nowhere").run("write")
    assert (done.status, done.lines, len(done.stderr.splitlines())) == (1, [], 1)


@pytest.mark.parametrize("moment", ["before go", "after go"])
@pytest.mark.parametrize(
    "method", ["write", "pclog", "mapped-mutex", "mapped-semaphore", "mapped-futex"]
)
def test_a_killed_writer_ends_the_run_with_a_sentence(
    pcappend: Program, method: str, moment: str
) -> None:
    started = pcappend.start(method, "--ops", "1M", "--bytes", 16)
    members = children(started.pid)
    if moment == "before go":
        os.kill(members[1], signal.SIGKILL)
        go(started)
    else:
        go(started)
        time.sleep(0.02)
        os.kill(members[1], signal.SIGKILL)
    out, stderr = started.communicate(timeout=60)
    assert started.returncode == 1, out
    assert "killed by signal 9" in stderr
    assert not [member for member in members if Path(f"/proc/{member}").exists()], (
        "the other writers must be killed"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_terminated_run_kills_its_writers(pcappend: Program, number: signal.Signals) -> None:
    started = pcappend.start("pclog", "--ops", "1G")
    members = children(started.pid)
    go(started)
    time.sleep(0.05)
    started.send_signal(number)
    started.communicate(timeout=60)
    assert started.returncode == -number
    assert not [member for member in members if Path(f"/proc/{member}").exists()]


@pytest.mark.parametrize(
    "method", ["write", "writev", "fwrite", "batch", "handoff", "reserve-pwrite", "aio", "uring"]
)
def test_a_full_disk_is_counted(pcappend: Program, method: str) -> None:
    load = ("--procs", 2, "--ops", 1000, "--bytes", 1000)
    done = pcappend.run(method, *load, before=files_of(1_500_000))
    assert done.status == 1
    assert done.end["checksum_ok"] is False
    assert done.response["file_bytes"] <= 1_500_000
    assert 0 < done.response["records"] <= 1500
    assert done.response["lost_records"] == 2000 - done.response["records"]
    assert set(done.end["errors"]) == {"EFBIG"}


def test_a_log_that_cannot_grow_is_counted(pcappend: Program) -> None:
    words = (
        *("--procs", 2, "--ops", 1000, "--bytes", 1000, "--window", "64K", "--growth-bytes", "64K"),
    )
    done = pcappend.run("pclog", *words, before=files_of(1_000_000))
    assert done.status == 1
    assert done.end["checksum_ok"] is False
    assert done.response["lost_records"] + done.response["records"] == 2000
    assert done.response["records"] > 500
    assert done.response["failed_calls"] == done.response["lost_records"]


def test_a_mapping_without_space_is_one_sentence(pcappend: Program) -> None:
    done = pcappend.run("mapped-atomic", before=files_of(1_000_000))
    assert (done.status, done.lines, len(done.stderr.splitlines())) == (1, [], 1)


def test_several_failing_writers_report_once(pcappend: Program) -> None:
    done = pcappend.run("handoff", before=files_of(100_000))  # its ring buffers are files in memory
    assert (done.status, done.lines, len(done.stderr.splitlines())) == (1, [], 1)
    assert "not enough memory" in done.stderr
