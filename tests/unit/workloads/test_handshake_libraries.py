"""The libraries of the handshake in Rust, C and Python: one version, and valid messages only."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pagecage.agent.programs.handshake_process import (
    PROTOCOL_VERSION,
    HandshakeProcess,
    parse_message,
)
from tests.tree import ROOT

WORKLOADS = ROOT / "workloads"
STATED = {
    "pagecage-workload/src/handshake.rs": r"PROTOCOL_VERSION: u32 = (\d+);",
    "pagecage-workload/Cargo.toml": r'(?m)^version = "(\d+)\.\d+\.\d+"',
    "c/pagecage_workload.h": r"#define PAGECAGE_PROTOCOL_VERSION (\d+)",
    "python/pagecage_workload.py": r"(?m)^PROTOCOL_VERSION = (\d+)$",
    "java/PcIndex.java": r'\\"protocol\\":(\d+)',
    "lucene/PcLucene.java": r'\\"protocol\\":(\d+)',
    "../docs/HANDSHAKE.md": r"# The handshake, version (\d+)",
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50)


@pytest.mark.parametrize("path", STATED)
def test_each_states_the_version_that_the_agent_speaks(path: str) -> None:
    found = re.search(STATED[path], (WORKLOADS / path).read_text())
    assert found
    assert int(found[1]) == PROTOCOL_VERSION


def test_the_crate_has_no_dependencies() -> None:
    assert "dependencies" not in (WORKLOADS / "pagecage-workload/Cargo.toml").read_text()


@pytest.fixture(scope="module")
def c_message(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("message") / "message"
    sources = (Path(__file__).parent / "handshake_message.c", WORKLOADS / "c/pagecage_workload.c")
    warnings = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    flags = (*warnings, "-fsanitize=address,undefined", f"-I{WORKLOADS / 'c'}")
    subprocess.run(["gcc", *flags, "-o", program, *sources], check=True)
    return program


def printed(program: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([program, *words], capture_output=True, check=False, timeout=30)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    key=TEXTS.filter(lambda key: key not in ("type", "several", "none")),
    text=TEXTS,
    number=st.floats(allow_nan=False, allow_infinity=False),
    count=st.integers(0, 2**64 - 1),
)
def test_c_writes_what_it_was_given(
    c_message: Path, key: str, text: str, number: float, count: int
) -> None:
    done = printed(c_message, key, text, repr(number), str(count))
    assert done.returncode == 0, done.stderr
    assert parse_message(done.stdout.removesuffix(b"\n")) == {
        "type": "sample",
        key: text,
        "several": [number, {"count": count, "less": -1}, True],
        "none": None,
    }


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999"])
def test_c_refuses_a_number_that_json_lacks(c_message: Path, number: str) -> None:
    done = printed(c_message, "key", "text", number, "0")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.count(b"\n") == 1
    assert b"which is not a number in JSON" in done.stderr


@pytest.fixture(scope="module")
def library() -> Iterator[ModuleType]:
    """Import the library as a program beside it does."""
    folder = str(WORKLOADS / "python")
    sys.path.insert(0, folder)
    try:
        import pagecage_workload  # type: ignore[import-not-found]

        yield pagecage_workload
    finally:
        sys.path.remove(folder)
        del sys.modules["pagecage_workload"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)


@example({"response": {"speeds": [1.0, float("nan")]}})
@example({"response": {"speed": float("inf")}})
@given(st.dictionaries(TEXTS.filter(lambda key: key != "type"), JSON, max_size=4))
def test_python_writes_what_it_was_given_or_refuses(
    library: ModuleType, content: dict[str, Any]
) -> None:
    out = io.BytesIO()
    handshake = library.Handshake(read_from=io.BytesIO(), write_to=out)
    try:
        json.dumps(content, allow_nan=False)
    except ValueError:
        with pytest.raises(library.Failure, match="is not a number in JSON"):
            handshake._print("sample", content)
        assert out.getvalue() == b""
        return
    handshake._print("sample", content)
    assert out.getvalue().count(b"\n") == 1
    assert parse_message(out.getvalue()[:-1]) == {"type": "sample", **content}


@given(st.binary(max_size=200))
def test_python_begins_at_the_line_go_alone(library: ModuleType, line: bytes) -> None:
    handshake = library.Handshake(read_from=io.BytesIO(line), write_to=io.BytesIO())
    if line.startswith(b"go\n") or not line:
        assert handshake.wait_for_go() is bool(line)
        return
    with pytest.raises(library.Failure, match='expected the line "go"'):
        handshake.wait_for_go()


def test_python_reports_a_failure_in_one_sentence(
    library: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: object) -> None:
        raise library.Failure("there is no io_uring here", library.CANNOT_HERE)

    assert library.run("mine", fails, is_skipped=True) == 77
    assert capsys.readouterr().err == "mine: there is no io_uring here\n"


@pytest.mark.parametrize("language", ["c", "python"])
def test_a_template_speaks_with_the_agent(language: str, tmp_path: Path) -> None:
    """The one in Rust needs cargo for some seconds: tests/vm/test_templates.py."""
    argv = [sys.executable, str(WORKLOADS / "templates/python/workload.py")]
    if language == "c":
        program = tmp_path / "workload"
        folder = WORKLOADS / "c"
        sources = (WORKLOADS / "templates/c/workload.c", folder / "pagecage_workload.c")
        flags = ("-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{folder}")
        subprocess.run(["gcc", *flags, "-o", program, *sources], check=True)
        argv = [str(program)]
    (tmp_path / "data").write_bytes(bytes(300_000))
    spoken_with(["env", f"PYTHONPATH={WORKLOADS / 'python'}", *argv, str(tmp_path / "data")])


def spoken_with(argv: list[str]) -> None:
    """Take a template's workload through a whole trial."""
    process = HandshakeProcess(argv)
    assert process.wait_for("ready", deadline=time.monotonic() + 30)
    assert process.is_waiting()
    process.go()
    assert process.wait_for("end", deadline=time.monotonic() + 30)
    assert process.finish() == 0, process.tail.last_line()
    assert process.breach is None
    assert (process.conversation.end["bytes"], process.conversation.end["blocks"]) == (300_000, 5)
    assert process.conversation.end["covered_fraction"] == 1
    assert process.conversation.end["response"]["slowest_block_us"] > 0
