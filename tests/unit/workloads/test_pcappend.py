"""Tests of pcappend: its methods, record lengths, output lines and options."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.builders.pcappend import METHODS, SOUND, Program, children, go
from tests.tree import ROOT

C = ROOT / "workloads/c"
SANITIZED = (
    *("gcc", "-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"),
    *("-fsanitize=address,undefined", "-I."),
)
VERIFIERS = (
    *("pcappend/verify.c", "pcappend/ledger.c", "pcappend/stream.c", "pcappend/record.c"),
    *("contract/histogram.c", "pagecage_workload.c"),
)
RESPONSE = {
    *("append_seconds", "with_start_seconds", "with_start_per_call_us"),
    *("with_start_gibit_per_second", "cache_line_bytes", "wall_per_call_us", "bytes_per_second"),
    *("gibit_per_second", "records_per_second", "call_p50_us", "call_p90_us", "call_p99_us"),
    *("call_p999_us", "call_p9999_us", "call_max_us", "late_p50_us", "late_p90_us", "late_p99_us"),
    *("late_p999_us", "late_p9999_us", "late_max_us", "offered_per_second", "sync_calls"),
    *("sync_p50_us", "sync_p99_us", "records", "lost_records", "lost_bytes", "doubled_records"),
    *("torn_records", "disordered_records", "hole_bytes", "stray_bytes", "failed_calls"),
    *("minor_faults", "major_faults", "context_switches", "file_bytes"),
}


def test_the_verifier_finds_every_fault(tmp_path: Path) -> None:
    tests = sorted((C / "pcappend/tests").glob("*.c"))
    subprocess.run([*SANITIZED, "-o", tmp_path / "tests", *tests, *VERIFIERS], check=True, cwd=C)
    done = subprocess.run(
        [tmp_path / "tests", tmp_path], capture_output=True, text=True, check=False, timeout=600
    )
    assert (done.returncode, done.stdout) == (0, "all good\n"), done.stderr


@pytest.mark.parametrize("record_bytes", [1, 128, 4095])
@pytest.mark.parametrize("method", METHODS)
def test_every_record_is_there_or_counted(
    pcappend: Program, method: str, record_bytes: int
) -> None:
    each = 50 if method.startswith("direct") else 500  # refused calls take milliseconds
    words = ("--procs", 2, "--threads", 2, "--ops", each, "--bytes", record_bytes)
    done = pcappend.run(method, *words)
    response, errors = done.response, done.end["errors"]
    assert response["records"] + response["lost_records"] == 4 * each
    assert response["lost_records"] == response["failed_calls"] == sum(errors.values())
    assert response["lost_bytes"] == response["lost_records"] * record_bytes
    assert done.end["checksum_ok"] is (response["lost_records"] == 0)
    assert done.status == (0 if done.end["checksum_ok"] else 1), done.stderr
    if method in SOUND:
        assert done.end["checksum_ok"] is True
        assert done.end["bytes"] == done.end["distinct_bytes"] == 4 * each * record_bytes
    if method not in ("direct", "direct-misaligned", "seed-mmlog"):
        assert response["file_bytes"] == 4 * each * record_bytes


def test_methods_write_the_same(pcappend: Program) -> None:
    words = ("--procs", 2, "--ops", 300, "--bytes", "16..9000")
    sums = {method: pcappend.run(method, *words).end["checksum"] for method in SOUND}
    assert len(set(sums.values())) == 1, sums
    framed = pcappend.run("pclog", *words, "--framing", "framed")
    assert framed.end["checksum"] == sums["write"]
    assert framed.response["file_bytes"] > framed.end["bytes"]


def test_direct_pads_and_notes_it(pcappend: Program) -> None:
    done = pcappend.run("direct", "--procs", 2, "--ops", 50, "--bytes", 700)
    block_bytes = int(done.end["note"].split(" bytes")[0].split()[-1])
    assert done.response["file_bytes"] == 100 * -(-700 // block_bytes) * block_bytes


@pytest.mark.parametrize("method", ["aio", "uring"])
def test_records_in_flight_keep_their_order(pcappend: Program, method: str) -> None:
    assert pcappend.run(method, "--ops", 2000, "--bytes", "16..3000", "--depth", 32).status == 0


LOG_OPTIONS = [
    ("--window", "32K", "--growth", "ftruncate"),
    ("--growth-bytes", "64K", "--growth-percent", "10"),
    ("--prefault-bytes", "4M"),
    ("--framing", "framed"),
]


@pytest.mark.parametrize("words", LOG_OPTIONS)
def test_options_of_the_log(pcappend: Program, words: tuple[str, ...]) -> None:
    load = ("--procs", 2, "--ops", 3000, "--bytes", "16..6000")
    assert pcappend.run("pclog", *load, *words).status == 0


def test_lines_follow_the_contract(pcappend: Program) -> None:
    done = pcappend.run("write", "--procs", 2, "--threads", 2, "--ops", 1000)
    sample, stopped, end = done.lines
    assert (sample["type"], sample["iteration"]) == ("sample", 0)
    assert (sample["bytes"], sample["blocks"]) == (512000, 4000)
    assert stopped == {"type": "stopped"}
    assert set(end["response"]) == RESPONSE
    assert all(isinstance(value, int | float | None) for value in end["response"].values())
    assert (end["bytes"], end["blocks"], end["covered_fraction"]) == (512000, 4000, 1.0)
    assert (end["errors"], end["note"], len(end["threads"])) == ({}, None, 4)
    assert sum(thread["blocks"] for thread in end["threads"]) == 4000
    assert 0 < end["clock_ns"] < 100_000
    assert end["response"]["append_seconds"] == end["seconds"]
    assert end["response"]["with_start_seconds"] > end["seconds"] > 0


def test_refused_calls_count_in_the_articles_own_throughput(pcappend: Program) -> None:
    """The article divides the bytes offered by the whole time, although O_DIRECT refuses them."""
    end = pcappend.run("direct-misaligned", "--procs", 2, "--ops", 1000, "--bytes", 128).end
    response = end["response"]
    assert end["errors"].get("EINVAL"), "this file system accepts misaligned direct writes"
    assert response["gibit_per_second"] == 0
    assert response["with_start_gibit_per_second"] == pytest.approx(
        2000 * 128 * 8 / 2**30 / response["with_start_seconds"], rel=1e-3
    )


def test_figures_are_consistent(pcappend: Program) -> None:
    response = pcappend.run("write", "--procs", 2, "--ops", 20000).response
    for name, expected in (
        ("wall_per_call_us", response["append_seconds"] / 40000 * 1e6),
        ("records_per_second", 40000 / response["append_seconds"]),
        ("gibit_per_second", response["bytes_per_second"] * 8 / 2**30),
        ("with_start_per_call_us", response["with_start_seconds"] / 40000 * 1e6),
    ):
        assert response[name] == pytest.approx(expected, rel=1e-3), name
    ladder = [response[f"call_{step}_us"] for step in ("p50", "p90", "p99", "p999", "p9999", "max")]
    assert ladder == sorted(ladder)
    for name in ("late_max_us", "sync_p50_us", "offered_per_second"):
        assert response[name] is None, name


def test_syncs_are_as_many_as_asked(pcappend: Program) -> None:
    def syncs(policy: str) -> int:
        done = pcappend.run("write", "--procs", 4, "--ops", 40, "--fsync", policy)
        assert done.status == 0
        assert (done.response["sync_p99_us"] is None) is (policy == "none")
        return int(done.response["sync_calls"])

    assert (syncs("none"), syncs("every"), syncs("8")) == (0, 160, 20)
    assert 40 <= syncs("group") < 160, "one sync must serve several waiting writers"


def test_a_batch_is_written_before_it_is_synced(pcappend: Program) -> None:
    words = ("--procs", 2, "--ops", 64, "--fsync", 16, "--depth", 4)
    for method in ("batch", "handoff", "uring"):
        assert pcappend.run(method, *words).response["sync_calls"] == 8


def test_an_open_loop_keeps_its_times(pcappend: Program) -> None:
    done = pcappend.run("pclog", "--procs", 2, "--ops", 200, "--rate", 1000)
    assert 0.3 < done.end["seconds"] < 10, "the last record is due 0.399 s after the start"
    assert done.response["offered_per_second"] == 1000
    assert done.response["late_p50_us"] >= done.response["call_p50_us"]


def test_records_due_in_a_pause_are_late(pcappend: Program) -> None:
    started = pcappend.start("write", "--procs", 2, "--ops", 500, "--rate", 1000)
    members = children(started.pid)
    go(started)
    time.sleep(0.2)
    for member in members:
        os.kill(member, signal.SIGSTOP)
    time.sleep(0.4)
    for member in members:
        os.kill(member, signal.SIGCONT)
    out, _ = started.communicate(timeout=60)
    response = json.loads(out.splitlines()[-1])["response"]
    # 40 % were due during the pause, so 10 % are at least 0.3 s late.
    assert response["late_p90_us"] > 200_000
    assert response["call_p90_us"] < 100_000


def test_time_that_runs_out_leaves_a_part(pcappend: Program) -> None:
    for words in (("--ops", "1G"), ("--ops", "1G", "--rate", 50)):
        done = pcappend.run("write", "--procs", 2, *words, "--max-seconds", 0.2)
        assert done.status == 0, done.stderr
        assert 0 < done.end["covered_fraction"] < 1
        assert done.end["seconds"] < 10


def test_keep_leaves_the_file(pcappend_binary: Path, tmp_path: Path) -> None:
    assert Program(pcappend_binary, tmp_path).run("pclog", "--ops", 10, "--keep").status == 0
    assert sorted(path.stat().st_size for path in tmp_path.glob("*.log")) == [4 * 10 * 128]


def test_the_handshake(pcappend: Program) -> None:
    with pcappend.start("pclog", "--ops", 100) as started:
        assert started.stdin
        assert started.stdout
        assert len(children(started.pid)) == 4, "its writers are started before go"
        go(started)
        kinds = [json.loads(started.stdout.readline())["type"] for _ in range(3)]
        assert kinds == ["sample", "stopped", "end"]
        assert started.poll() is None, "the harness must still be able to read its counters"
        started.stdin.close()
        assert started.wait(timeout=30) == 0


def test_without_go_it_exits_quietly(pcappend: Program) -> None:
    done = subprocess.run(
        pcappend.argv("mapped-mutex"), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1
