"""The append log library: its own tests plain and under the sanitizers, its README's program, its scanner fuzzed."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tree import ROOT

C = ROOT / "workloads/c"
OUT = ROOT / "build/c"
LEAST_TESTS = 70


def make(*words: str, seconds: int = 600) -> str:
    """What make says; a failure of it is told by its own words."""
    argv = ["make", "-C", str(C), f"OUT={OUT}", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=seconds)
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.mark.parametrize(
    "kind", ["asan", pytest.param("check", marks=pytest.mark.long), pytest.param("tsan", marks=pytest.mark.long)]
)
def test_the_library_keeps_its_word(kind: str) -> None:
    lines = make(kind, seconds=880).splitlines()
    passed = [line for line in lines if line.startswith("ok ")]
    assert len(passed) >= LEAST_TESTS
    assert not [line for line in lines if line.startswith("FAILED")]


def test_a_test_that_fails_is_seen(tmp_path: Path) -> None:
    """The runner tells a failure by name and by status: with a reader that accepts any CRC, damage goes unseen."""
    shutil.copytree(C, tmp_path / "c")
    frames = tmp_path / "c/pclog/frames.c"
    text = frames.read_text()
    spoilt = text.replace("length) == word >> 32", "length) != 1 || true")
    assert spoilt != text
    frames.write_text(spoilt)
    argv = ["make", "-C", str(tmp_path / "c"), f"OUT={tmp_path}/out", f"{tmp_path}/out/pclog-tests-plain"]
    subprocess.run(argv, check=True, capture_output=True)
    tests = [str(tmp_path / "out/pclog-tests-plain"), "damaged"]
    done = subprocess.run(tests, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "FAILED a_damaged_frame_costs_itself_alone" in done.stdout


def test_the_program_of_the_readme_runs(tmp_path: Path) -> None:
    """As printed: the program, and the command that compiles it."""
    readme = (C / "README.md").read_text()
    program = re.search(r"```c\n(.*?)```", readme, re.DOTALL)
    command = re.search(r"^    (gcc .*hello\.c.*)$", readme, re.MULTILINE)
    assert program
    assert command
    make(str(OUT / "libpclog.a"))
    (tmp_path / "hello.c").write_text(program[1])
    for name in ("workloads", "build"):
        (tmp_path / name).symlink_to(ROOT / name)
    subprocess.run(shlex.split(command[1]), check=True, cwd=tmp_path)
    for times in (1, 2):
        done = subprocess.run([tmp_path / "hello"], check=True, cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout == "nothing went wrong\n"
        assert (tmp_path / "service.log").read_text() == "hello\n" * times


def seeds_of_real_logs(folder: Path) -> Path:
    """Framed logs without their head, as the target takes them."""
    make(str(OUT / "pcappend"))
    folder.mkdir()
    for number, length in enumerate(("1", "16..300", "4095")):
        logs = folder.parent / f"log-{number}"
        logs.mkdir()
        words = ("--method", "pclog", "--framing", "framed", "--ops", "5", "--bytes", length, "--growth-bytes", "4K")
        argv = [str(OUT / "pcappend"), "--dir", str(logs), *words, "--keep", "--no-handshake"]
        subprocess.run(argv, check=True, capture_output=True)
        log = next(path for path in logs.rglob("*") if path.is_file() and path.suffix != ".pclog")
        body = log.read_bytes()[32:60000]
        assert body.rstrip(b"\0")
        (folder / f"seed-{number}").write_bytes(body)
    return folder


@pytest.mark.long
def test_the_scanner_under_a_fuzzer(tmp_path: Path) -> None:
    assert shutil.which("clang"), "there is no clang: make test-long installs it"
    seeds = seeds_of_real_logs(tmp_path / "seeds")
    said = make("fuzz", f"SEEDS={seeds}", "FUZZ_SECONDS=60", seconds=300)
    assert len(list(seeds.iterdir())) > 10, said  # it found its way beyond what it was given
