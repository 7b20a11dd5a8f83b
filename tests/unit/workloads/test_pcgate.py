"""Tests of pcgate: it finds a program as a container engine does, waits, and becomes it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.tree import ROOT

OUT = ROOT / "build/c"


@pytest.fixture(scope="module")
def pcgate() -> str:
    argv = ["make", "-C", str(ROOT / "workloads/c"), "OUT=../../build/c", "../../build/c/pcgate"]
    subprocess.run(argv, check=True, capture_output=True)
    return str(OUT / "pcgate")


def gate(
    pcgate: str, *words: str, sent: bytes = b"go\n", path: str | None = None, cwd: Path = ROOT
) -> tuple[int, bytes, str]:
    """Status, output and messages of a program behind the gate."""
    done = subprocess.run(
        [pcgate, *words],
        input=sent,
        capture_output=True,
        env={} if path is None else {"PATH": path},
        cwd=cwd,
        check=False,
        timeout=30,
    )
    return done.returncode, done.stdout, done.stderr.decode()


def program(path: Path, mode: int = 0o755) -> Path:
    path.write_text('#!/bin/sh\necho "$0 $*"\n')
    path.chmod(mode)
    return path


def test_it_becomes_the_program_after_go(pcgate: str, tmp_path: Path) -> None:
    made = program(tmp_path / "own")
    assert gate(pcgate, str(made), "a b", "") == (0, b"\n%s a b \n" % bytes(made), "")


def test_the_rest_of_the_input_is_the_programs(pcgate: str) -> None:
    assert gate(pcgate, "/bin/cat", sent=b"go\nfirst\nsecond") == (0, b"\nfirst\nsecond", "")


def test_without_go_nothing_is_started(pcgate: str) -> None:
    assert gate(pcgate, "/bin/echo", "no", sent=b"") == (1, b"\n", "")


@pytest.mark.parametrize("path", ["{}", "/nowhere:{}", "{}:/nowhere", "{}:", ":{}"])
def test_a_name_is_looked_up_in_path(pcgate: str, tmp_path: Path, path: str) -> None:
    program(tmp_path / "own")
    status, out, _ = gate(pcgate, "own", path=path.format(tmp_path))
    assert (status, out) == (0, b"\n%s/own \n" % bytes(tmp_path))


def test_an_empty_entry_of_path_is_the_current_folder(pcgate: str, tmp_path: Path) -> None:
    program(tmp_path / "own")
    assert gate(pcgate, "own", path="/nowhere:", cwd=tmp_path)[:2] == (0, b"\n./own \n")


def test_without_path_the_engines_own_is_searched(pcgate: str) -> None:
    assert gate(pcgate, "echo", "found")[:2] == (0, b"\nfound\n")


@pytest.mark.parametrize("name", ["nope", "/nope", "", ".", "/etc", "./folder", "./text"])
def test_a_missing_program_ends_it_before_the_gate(pcgate: str, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    program(tmp_path / "text", mode=0o644)
    said = f"there is no program {name} in the image\n"
    assert gate(pcgate, name, path=str(tmp_path), cwd=tmp_path) == (127, b"", said)


def test_a_program_that_the_kernel_refuses(pcgate: str, tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(b"\x7fELF")
    (tmp_path / "broken").chmod(0o755)
    status, out, said = gate(pcgate, "./broken", cwd=tmp_path)
    assert (status, out, said) == (126, b"\n", "./broken: Exec format error\n")


def test_it_needs_a_program(pcgate: str) -> None:
    assert gate(pcgate)[0] == 2


def test_it_is_static(pcgate: str) -> None:
    """A container from scratch has no loader."""
    done = subprocess.run(["ldd", pcgate], capture_output=True, text=True, check=False)
    assert "not a dynamic executable" in done.stdout + done.stderr
