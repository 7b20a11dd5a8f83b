"""pcappend: every method, every length, each line; what it refuses, and what it does where something fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tree import ROOT
from tests.unit.pcappend import METHODS, SOUND, Program, children, files_of, go

C = ROOT / "workloads/c"
SANITIZED = ("gcc", "-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-I.")
JUDGES = ("pcappend/verify.c", "pcappend/ledger.c", "pcappend/stream.c", "pcappend/record.c", "contract/histogram.c")
RESPONSE = {
    "append_seconds", "with_start_seconds", "wall_per_call_us", "bytes_per_second", "gibit_per_second",
    "records_per_second", "call_p50_us", "call_p90_us", "call_p99_us", "call_p999_us", "call_p9999_us", "call_max_us",
    "late_p50_us", "late_p90_us", "late_p99_us", "late_p999_us", "late_p9999_us", "late_max_us", "offered_per_second",
    "sync_calls", "sync_p50_us", "sync_p99_us", "records", "lost_records", "lost_bytes", "doubled_records",
    "torn_records", "disordered_records", "hole_bytes", "stray_bytes", "failed_calls", "minor_faults", "major_faults",
    "context_switches", "file_bytes",
}  # fmt: skip


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert shutil.which("gcc"), "there is no gcc: make setup"
    out = tmp_path_factory.mktemp("pcappend")
    subprocess.run(["make", "-s", "-j2", "-C", C, f"OUT={out}", out / "pcappend"], check=True)
    return out / "pcappend"


@pytest.fixture
def program(binary: Path, tmp_path: Path) -> Iterator[Program]:
    folder = tmp_path / "data"
    folder.mkdir()
    yield Program(binary, folder)
    assert not list(folder.iterdir()), "its files must go with it, however it ends"


def test_the_judges_know_every_fault(tmp_path: Path) -> None:
    tests = sorted((C / "pcappend/tests").glob("*.c"))
    subprocess.run([*SANITIZED, "-o", tmp_path / "tests", *tests, *JUDGES], check=True, cwd=C)
    done = subprocess.run([tmp_path / "tests", tmp_path], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "all good\n"), done.stderr


@pytest.mark.parametrize("record_bytes", [1, 128, 4095])
@pytest.mark.parametrize("method", METHODS)
def test_every_record_is_there_or_counted(program: Program, method: str, record_bytes: int) -> None:
    done = program.run(method, "--procs", 2, "--threads", 2, "--ops", 500, "--bytes", record_bytes)
    response, errors = done.response, done.end["errors"]
    assert response["records"] + response["lost_records"] == 2000
    assert response["lost_records"] == response["failed_calls"] == sum(errors.values())
    assert response["lost_bytes"] == response["lost_records"] * record_bytes
    assert done.end["checksum_ok"] is (response["lost_records"] == 0)
    assert done.status == (0 if done.end["checksum_ok"] else 1), done.stderr
    if method in SOUND:
        assert done.end["checksum_ok"] is True
        assert done.end["bytes"] == done.end["distinct_bytes"] == 2000 * record_bytes
    if method not in ("direct", "direct-misaligned", "seed-mmlog"):
        assert response["file_bytes"] == 2000 * record_bytes


def test_methods_write_the_same(program: Program) -> None:
    words = ("--procs", 2, "--ops", 300, "--bytes", "16..9000")
    sums = {method: program.run(method, *words).end["checksum"] for method in SOUND}
    assert len(set(sums.values())) == 1, sums
    framed = program.run("pclog", *words, "--framing", "framed")
    assert framed.end["checksum"] == sums["write"]
    assert framed.response["file_bytes"] > framed.end["bytes"]


def test_direct_pads_and_says_so(program: Program) -> None:
    done = program.run("direct", "--procs", 2, "--ops", 50, "--bytes", 700)
    block_bytes = int(done.end["note"].split(" bytes")[0].split()[-1])
    assert done.response["file_bytes"] == 100 * -(-700 // block_bytes) * block_bytes


@pytest.mark.parametrize("method", ["aio", "uring"])
def test_many_in_flight_keep_their_order(program: Program, method: str) -> None:
    assert program.run(method, "--ops", 2000, "--bytes", "16..3000", "--depth", 32).status == 0


WAYS_OF_THE_LOG = [
    ("--window", "32K", "--growth", "ftruncate"),
    ("--growth-bytes", "64K", "--growth-percent", "10"),
    ("--prefault-bytes", "4M"),
    ("--framing", "framed"),
]


@pytest.mark.parametrize("words", WAYS_OF_THE_LOG)
def test_the_log_in_all_its_ways(program: Program, words: tuple[str, ...]) -> None:
    assert program.run("pclog", "--procs", 2, "--ops", 3000, "--bytes", "16..6000", *words).status == 0


def test_lines_follow_the_contract(program: Program) -> None:
    done = program.run("write", "--procs", 2, "--threads", 2, "--ops", 1000)
    sample, stopped, end = done.lines
    assert (sample["type"], sample["iteration"], sample["bytes"], sample["blocks"]) == ("sample", 0, 512000, 4000)
    assert stopped == {"type": "stopped"}
    assert set(end["response"]) == RESPONSE
    assert all(value is None or isinstance(value, int | float) for value in end["response"].values())
    assert (end["bytes"], end["blocks"], end["covered_fraction"]) == (512000, 4000, 1.0)
    assert (end["errors"], end["note"], len(end["threads"])) == ({}, None, 4)
    assert sum(thread["blocks"] for thread in end["threads"]) == 4000
    assert 0 < end["clock_ns"] < 100_000
    assert end["response"]["with_start_seconds"] > end["response"]["append_seconds"] == end["seconds"] > 0


def test_figures_fit_each_other(program: Program) -> None:
    response = program.run("write", "--procs", 2, "--ops", 20000).response
    assert response["wall_per_call_us"] == pytest.approx(response["append_seconds"] / 40000 * 1e6, rel=1e-3)
    assert response["records_per_second"] == pytest.approx(40000 / response["append_seconds"], rel=1e-3)
    assert response["gibit_per_second"] == pytest.approx(response["bytes_per_second"] * 8 / 2**30, rel=1e-3)
    ladder = [response[f"call_{step}_us"] for step in ("p50", "p90", "p99", "p999", "p9999", "max")]
    assert ladder == sorted(ladder)
    assert response["late_max_us"] is response["sync_p50_us"] is response["offered_per_second"] is None


def test_syncs_are_as_many_as_asked(program: Program) -> None:
    def syncs(policy: str) -> int:
        done = program.run("write", "--procs", 4, "--ops", 40, "--fsync", policy)
        assert done.status == 0
        assert (done.response["sync_p99_us"] is None) is (policy == "none")
        return int(done.response["sync_calls"])

    assert (syncs("none"), syncs("every"), syncs("8")) == (0, 160, 20)
    assert 40 <= syncs("group") < 160, "one sync must serve several that wait"


def test_a_batch_is_written_before_it_is_synced(program: Program) -> None:
    for method in ("batch", "handoff", "uring"):
        assert program.run(method, "--procs", 2, "--ops", 64, "--fsync", 16, "--depth", 4).response["sync_calls"] == 8


def test_an_open_loop_keeps_its_times(program: Program) -> None:
    done = program.run("pclog", "--procs", 2, "--ops", 200, "--rate", 1000)
    assert done.end["seconds"] == pytest.approx(0.4, rel=0.5)
    assert done.end["seconds"] >= 0.399 - 0.001
    assert done.response["offered_per_second"] == 1000
    assert done.response["late_p50_us"] >= done.response["call_p50_us"]


def test_a_pause_makes_all_late_that_was_due_in_it(program: Program) -> None:
    started = program.start("write", "--procs", 2, "--ops", 500, "--rate", 1000)
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
    assert response["late_p90_us"] > 200_000, "four of ten were due in the pause, evenly: one of ten 0.3 s late"
    assert response["call_p90_us"] < 100_000


def test_time_that_runs_out_leaves_a_part(program: Program) -> None:
    for words in (("--ops", "1G"), ("--ops", "1G", "--rate", 50)):
        done = program.run("write", "--procs", 2, *words, "--max-seconds", 0.2)
        assert done.status == 0, done.stderr
        assert 0 < done.end["covered_fraction"] < 1
        assert done.end["seconds"] < 2


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
def test_refusals_are_one_sentence(program: Program, words: list[str], says: str) -> None:
    done = program.run("write", *words)
    assert (done.status, done.lines) == (2, []), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


def test_what_is_needed_is_asked_for(binary: Path) -> None:
    done = subprocess.run([binary, "--method", "write"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--dir" in done.stderr
    told = subprocess.run([binary, "--help"], capture_output=True, text=True, check=True).stdout
    assert all(f"  {method} " in told for method in METHODS)


def test_a_directory_that_is_none_is_a_sentence(binary: Path, tmp_path: Path) -> None:
    done = Program(binary, tmp_path / "nowhere").run("write")
    assert (done.status, done.lines, len(done.stderr.splitlines())) == (1, [], 1)


def test_the_file_stays_where_asked(binary: Path, tmp_path: Path) -> None:
    assert Program(binary, tmp_path).run("pclog", "--ops", 10, "--keep").status == 0
    assert sorted(path.stat().st_size for path in tmp_path.glob("*.log")) == [4 * 10 * 128]


def test_the_handshake_is_spoken(program: Program) -> None:
    with program.start("pclog", "--ops", 100) as started:
        assert started.stdin
        assert started.stdout
        assert len(children(started.pid)) == 4, "its writers stand ready"
        go(started)
        kinds = [json.loads(started.stdout.readline())["type"] for _ in range(3)]
        assert kinds == ["sample", "stopped", "end"]
        assert started.poll() is None, "its counters must still be there to be read"
        started.stdin.close()
        assert started.wait(timeout=30) == 0


def test_without_go_it_leaves_quietly(program: Program) -> None:
    done = subprocess.run(program.argv("mapped-mutex"), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1


@pytest.mark.parametrize("moment", ["before go", "after go"])
@pytest.mark.parametrize("method", ["write", "pclog", "mapped-mutex", "mapped-semaphore", "mapped-futex"])
def test_a_killed_writer_is_a_sentence_and_no_hang(program: Program, method: str, moment: str) -> None:
    started = program.start(method, "--ops", "1M", "--bytes", 16)
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
def test_a_stopped_run_takes_everything_with_it(program: Program, number: signal.Signals) -> None:
    started = program.start("pclog", "--ops", "1G")
    members = children(started.pid)
    go(started)
    time.sleep(0.05)
    started.send_signal(number)
    started.communicate(timeout=60)
    assert started.returncode == -number
    assert not [member for member in members if Path(f"/proc/{member}").exists()]


@pytest.mark.parametrize("method", ["write", "writev", "fwrite", "batch", "handoff", "reserve-pwrite", "aio", "uring"])
def test_a_full_disk_is_counted(program: Program, method: str) -> None:
    done = program.run(method, "--procs", 2, "--ops", 1000, "--bytes", 1000, before=files_of(1_500_000))
    assert done.status == 1
    assert done.end["checksum_ok"] is False
    assert done.response["file_bytes"] <= 1_500_000
    assert 0 < done.response["records"] <= 1500
    assert done.response["lost_records"] == 2000 - done.response["records"]
    assert set(done.end["errors"]) == {"EFBIG"}


def test_a_log_that_cannot_grow_is_counted(program: Program) -> None:
    words = ("--procs", 2, "--ops", 1000, "--bytes", 1000, "--window", "64K", "--growth-bytes", "64K")
    done = program.run("pclog", *words, before=files_of(1_000_000))
    assert done.status == 1
    assert done.end["checksum_ok"] is False
    assert done.response["lost_records"] + done.response["records"] == 2000
    assert done.response["records"] > 500
    assert done.response["failed_calls"] == done.response["lost_records"]


def test_a_mapping_that_finds_no_room_is_a_sentence(program: Program) -> None:
    done = program.run("mapped-atomic", before=files_of(1_000_000))
    assert (done.status, done.lines, len(done.stderr.splitlines())) == (1, [], 1)


def test_many_that_fail_say_it_once(program: Program) -> None:
    done = program.run("handoff", before=files_of(100_000))  # its rings are files in memory
    assert (done.status, done.lines, len(done.stderr.splitlines())) == (1, [], 1)
    assert "no memory" in done.stderr
