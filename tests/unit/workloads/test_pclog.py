"""Runs of the append log library: its C tests, plain and under sanitizers, the README's program,
and a fuzzer.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from pagecage.process import run
from tests.tree import ROOT

C = ROOT / "workloads/c"
OUT = ROOT / "build/c"
LEAST_TESTS = 70


def make(*words: str, seconds: int = 600) -> str:
    """Run make and return its standard output; a failure shows the end of its output."""
    argv = ["make", "-C", str(C), f"OUT={OUT}", *words]
    done = run(argv, check=False, timeout_seconds=seconds)
    assert done.ok, f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("asan", marks=pytest.mark.slow),
        pytest.param("check", marks=pytest.mark.long),
        pytest.param("tsan", marks=pytest.mark.long),
    ],
)
def test_the_library_passes_its_tests(kind: str) -> None:
    lines = make(kind, seconds=880).splitlines()
    passed = [line for line in lines if line.startswith("ok ")]
    assert len(passed) >= LEAST_TESTS
    assert not [line for line in lines if line.startswith("FAILED")]


def test_a_test_that_fails_is_seen(tmp_path: Path) -> None:
    """A reader that accepts any CRC misses damage, and the runner reports that by name and by exit
    status.
    """
    shutil.copytree(C, tmp_path / "c")
    frames = tmp_path / "c/pclog/frames.c"
    text = frames.read_text()
    spoilt = text.replace("length) == word >> 32", "length) != 1 || true")
    assert spoilt != text
    frames.write_text(spoilt)
    runner = f"{tmp_path}/out/pclog-tests-plain"
    run(["make", "-C", tmp_path / "c", f"OUT={tmp_path}/out", runner])
    done = run([runner, "damaged"], check=False)
    assert done.status == 1
    assert "FAILED a_damaged_frame_affects_only_itself" in done.stdout


def test_the_program_of_the_readme_runs(tmp_path: Path) -> None:
    """Compile the program with the command in the README, and run it twice."""
    readme = (C / "README.md").read_text()
    program = re.search(r"```c\n(.*?)```", readme, re.DOTALL)
    command = re.search(r"^    (gcc .*hello\.c.*)$", readme, re.MULTILINE)
    assert program
    assert command
    make(str(OUT / "libpclog.a"))
    (tmp_path / "hello.c").write_text(program[1])
    for name in ("workloads", "build"):
        (tmp_path / name).symlink_to(ROOT / name)
    run(shlex.split(command[1]), cwd=tmp_path)
    for times in (1, 2):
        done = run([tmp_path / "hello"], cwd=tmp_path)
        assert done.stdout == "the call succeeded\n"
        assert (tmp_path / "service.log").read_text() == "hello\n" * times


def seeds_of_real_logs(folder: Path) -> Path:
    """Return a folder of framed logs without their heads, which is the input of the fuzz target."""
    make(str(OUT / "pcappend"))
    folder.mkdir()
    for number, length in enumerate(("1", "16..300", "4095")):
        logs = folder.parent / f"log-{number}"
        logs.mkdir()
        log_words = ("--method", "pclog", "--framing", "framed", "--growth-bytes", "4K")
        words = (*log_words, "--ops", "5", "--bytes", length, "--keep", "--no-handshake")
        run([OUT / "pcappend", "--dir", logs, *words])
        log = next(path for path in logs.rglob("*") if path.is_file() and path.suffix != ".pclog")
        body = log.read_bytes()[32:60000]
        assert body.rstrip(b"\0")
        (folder / f"seed-{number}").write_bytes(body)
    return folder


@pytest.mark.long
def test_the_scanner_under_a_fuzzer(tmp_path: Path) -> None:
    assert shutil.which("clang"), "there is no clang: make test-long installs it"
    seeds = seeds_of_real_logs(tmp_path / "seeds")
    output = make("fuzz", f"SEEDS={seeds}", "FUZZ_SECONDS=60", seconds=300)
    assert len(list(seeds.iterdir())) > 10, output  # it found inputs beyond the seeds
