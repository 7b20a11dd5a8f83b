"""The single file: complete, the same for the same sources, and for older versions of Python."""

from __future__ import annotations

import ast
import io
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.hosts.agent_package import (
    ENTRY,
    OLDEST_PYTHON,
    module_files,
    verify_bytes,
    write_verify_package,
)
from pagecage.process import Completed, run

BARE = [sys.executable, "-I", "-S"]
NEWER_ARGUMENTS = {"zip": {"strict"}, "dataclass": {"kw_only", "slots"}}
NEWER_MODULES = {"tomllib"}
NEWER_NAMES = {"StrEnum", "pairwise", "UTC", "ExceptionGroup", "Self", "assert_never", "batched"}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return write_verify_package(tmp_path)


def start(program: Path, *words: str) -> Completed:
    return run([*BARE, program, *words], check=False, env={"PATH": os.defpath})


def test_it_runs_with_nothing_installed(program: Path) -> None:
    done = start(program, "--help")
    assert (done.status, "--container" in done.stdout) == (0, True)
    assert os.access(program, os.X_OK)
    assert program.read_bytes().startswith(b"#!/usr/bin/env python3\n")


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ((), 2, "pagecage-verify: none of --unit, --container and --pid was given"),
        (("--pid", "x"), 2, "argument --pid: 'x' is not a number from 1"),
        (("--pid", "0"), 2, "argument --pid: '0' is not a number from 1"),
        (("--pid", "9" * 30), 2, "is not a number from 1"),
        (("--pid", "1", "--time", "-1s"), 2, "--time"),
        (("--unit", "a\nb"), 2, "is not a valid name"),
    ],
)
def test_bad_input_is_one_sentence(
    program: Path, words: tuple[str, ...], status: int, says: str
) -> None:
    done = start(program, *words)
    assert (done.status, done.stdout) == (status, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_this_machine_is_verified_or_refused(program: Path) -> None:
    done = start(program, "--pid", str(os.getpid()), "--time", "0s", "--json")
    if done.status == 3:
        assert "no cgroup hierarchy" in done.stderr
        return
    assert json.loads(done.stdout)["type"] == "verification"


def test_equal_sources_make_equal_bytes(program: Path) -> None:
    assert verify_bytes() == program.read_bytes()
    before = program.stat().st_mtime_ns
    assert write_verify_package(program.parent).stat().st_mtime_ns == before


def test_only_what_it_imports_travels() -> None:
    names = zipfile.ZipFile(io.BytesIO(verify_bytes())).namelist()
    parts = {name.split("/")[1] for name in names if "/" in name}
    assert parts <= {
        *("__init__.py", "errors.py", "units.py", "process.py", "whole_files.py"),
        *("importers", "linux", "model", "verdicts", "verify"),
    }
    assert "pagecage/linux/cgroupfs.py" not in names


def evaluated_unions(tree: ast.AST) -> Iterator[ast.BinOp]:
    """Yield each `A | None` outside of annotations, which are not evaluated."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.BinOp) and "None" in map(ast.unparse, (node.left, node.right)):
                yield node
            elif isinstance(node, ast.AST):
                yield from evaluated_unions(node)


def too_new(source: str) -> list[str]:
    """Return what an older Python would refuse, at its start or later."""
    try:
        tree = ast.parse(source, feature_version=OLDEST_PYTHON)
    except SyntaxError as error:
        return [f"line {error.lineno}: {error.msg}"]
    found = [f"line {one.lineno}: A | None is evaluated" for one in evaluated_unions(tree)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            newer = NEWER_ARGUMENTS.get(node.func.id, set())
            found += [f"{node.func.id}({word.arg}=)" for word in node.keywords if word.arg in newer]
            types = node.args[1:] if node.func.id == "isinstance" else []
            found += ["isinstance(.., A | B)" for one in types if isinstance(one, ast.BinOp)]
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = {alias.name for alias in node.names}
            found += [f"import {name}" for name in names & (NEWER_NAMES | NEWER_MODULES)]
    return found


def test_an_older_python_reads_it() -> None:
    sources = module_files(ENTRY)
    assert len(sources) > 20
    found = {name: too_new(path.read_text()) for name, path in sources.items()}
    assert {name: reasons for name, reasons in found.items() if reasons} == {}


@pytest.mark.parametrize(
    "source",
    [
        "match 5:\n    case 5: pass\n",
        "zip([], [], strict=True)",
        "isinstance(5, int | str)",
        "from enum import StrEnum",
        "Texts = Sequence[str | None]",
        "import tomllib",
        "@dataclass(frozen=True, kw_only=True)\nclass A: ...",
    ],
)
def test_what_is_too_new_is_seen(source: str) -> None:
    assert too_new(source)


def test_too_old_a_python_is_one_sentence(tmp_path: Path) -> None:
    text = zipfile.ZipFile(io.BytesIO(verify_bytes())).read("__main__.py").decode()
    done = run([*BARE, "-c", f"import sys\nsys.version_info = (3, 8)\n{text}"], check=False)
    assert (done.status, done.stderr) == (3, "pagecage-verify: Python 3.9 or newer is needed\n")
