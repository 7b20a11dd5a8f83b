"""Tests of the ports of pcscan to C and Python: the same lines, checksums and refusals."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tree import ROOT

SIZE_BYTES = (1 << 20) + 4096 + 77
Port = list[str]


@pytest.fixture(scope="session")
def c_port(tmp_path_factory: pytest.TempPathFactory) -> Port:
    out = tmp_path_factory.mktemp("pcscan")
    assert shutil.which("gcc"), "there is no gcc: make setup"
    subprocess.run(
        ["make", "-s", "-C", ROOT / "workloads/c", f"OUT={out}", out / "pcscan-c"], check=True
    )
    return [str(out / "pcscan-c")]


@pytest.fixture(params=["c", "python"])
def port(request: pytest.FixtureRequest) -> Port:
    if request.param == "python":
        return [sys.executable, str(ROOT / "workloads/python/pcscan.py")]
    built: Port = request.getfixturevalue("c_port")
    return built


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"data{number}" for number in range(3)]
    for path in paths:
        data = os.urandom(SIZE_BYTES)
        path.write_bytes(data)
        Path(f"{path}.json").write_text(
            json.dumps({"stride512_sum": str(sum(data[::512]))}, separators=(",", ":"))
        )
    return [str(path) for path in paths]


def run(port: Port, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [*port, *words, "--no-handshake"]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    "way", [("--io", "mmap"), ("--io", "read"), ("--io", "conventional"), ("--window", "64K")]
)
def test_every_byte_is_scanned_and_verified(
    port: Port, files: list[str], way: tuple[str, str]
) -> None:
    done = run(port, "--files", *files, *way, "--expect-sidecars", "--heartbeat-us", "1000")
    assert done.returncode == 0, done.stderr
    sample, end = lines(done.stdout)
    sidecars = [json.loads(Path(f"{path}.json").read_text()) for path in files]
    expected = sum(int(sidecar["stride512_sum"]) for sidecar in sidecars)
    assert (sample["type"], sample["checksum"]) == ("sample", str(expected))
    assert (end["type"], end["checksum_ok"], end["covered_fraction"]) == ("end", True, 1.0)
    assert end["bytes"] == end["distinct_bytes"] == SIZE_BYTES * len(files)
    assert [file["bytes"] for file in end["files"]] == [SIZE_BYTES] * len(files)
    assert end["threads"][0]["major_faults"] is not None
    assert end["response"]["heartbeat_count"] >= 0


def test_a_changed_byte_is_a_wrong_checksum(port: Port, files: list[str]) -> None:
    data = bytearray(Path(files[1]).read_bytes())
    data[512] ^= 1
    Path(files[1]).write_bytes(data)
    done = run(port, "--files", *files, "--expect-sidecars")
    assert done.returncode == 1
    assert "sidecars" in done.stderr
    assert lines(done.stdout)[-1]["checksum_ok"] is False


def test_without_a_beat_the_heartbeat_is_null(port: Port, files: list[str]) -> None:
    done = run(port, "--files", files[0], "--heartbeat-us", "60000000")
    response = lines(done.stdout)[-1]["response"]
    assert response["heartbeat_count"] == 0
    assert response["heartbeat_p999_us"] is None
    assert response["gap_max_us"] is None


def test_time_that_runs_out_leaves_a_part(port: Port, files: list[str]) -> None:
    words = ("--expect-sidecars", "--window", "64K", "--max-seconds", "0.000001")
    done = run(port, "--files", *files, *words)
    end = lines(done.stdout)[-1]
    assert done.returncode == 0, done.stderr
    assert end["covered_fraction"] < 1.0
    assert end["checksum_ok"] is None


@pytest.mark.parametrize(
    ("words", "status", "mentioned"),
    [
        (["--io", "tape"], 2, "tape"),
        (["--stride", "4096", "--expect-sidecars"], 2, "512"),
        (["--window", "100K"], 2, "--window"),
        (["--max-seconds", "soon"], 2, "--max-seconds"),
        (["--colour", "red"], 2, "--colour"),
        (["--files", "/nowhere/at/all"], 1, "/nowhere/at/all"),
    ],
)
def test_refusals_are_one_sentence(
    port: Port, files: list[str], words: list[str], status: int, mentioned: str
) -> None:
    done = run(port, "--files", files[0], *words)
    assert done.returncode == status, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert mentioned in done.stderr


def test_the_handshake(port: Port, files: list[str]) -> None:
    with subprocess.Popen([*port, "--files", *files], stdin=-1, stdout=-1, text=True) as program:
        assert program.stdin
        assert program.stdout
        assert json.loads(program.stdout.readline())["type"] == "ready"
        program.stdin.write("go\n")
        program.stdin.flush()
        kinds = [json.loads(program.stdout.readline())["type"] for _ in range(2)]
        assert kinds == ["sample", "end"]
        assert program.poll() is None, "the harness must still be able to read its counters"
        program.stdin.close()
        assert program.wait(timeout=30) == 0
    argv = [*port, "--files", *files]
    closed = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (closed.returncode, closed.stdout.count(b"\n")) == (0, 1)
