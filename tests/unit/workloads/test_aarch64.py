"""Workloads that are cross-compiled for aarch64 and run by qemu-user."""

from __future__ import annotations

import json
import os
import platform
import shutil
from pathlib import Path
from typing import Any

import pytest

from pagecage.process import Completed, run
from tests.tree import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
MACHINE = "aarch64" if platform.machine() == "x86_64" else "x86_64"
BIN = ROOT / "build" / MACHINE / "bin"
ELF_MACHINE = {"x86_64": 62, "aarch64": 183}[MACHINE]  # elf(5)
DATA_BYTES = 1 << 20
IN_RUST = ("pcgen", "pcread", "pcscan", "pcindex", "pcprefault", "pcprobe", "pcwrite", "pcburst")
IN_C = ("pcscan-c", "pcappend", "pccrash", "pcgate")
NOT_HERE = "pagecage: without the workloads in Rust: this machine has no standard library of Rust"


@pytest.fixture(scope="module")
def built() -> Completed:
    """The output of the build; without Rust's standard library only C is compiled."""
    for name in (f"{MACHINE}-linux-gnu-gcc", f"qemu-{MACHINE}-static"):
        assert shutil.which(name), f"there is no {name}: make test-long installs it"
    target = f"{MACHINE}-unknown-linux-gnu"
    return run([ROOT / "tools/build-workloads", target], timeout_seconds=1500)


def emulated(name: str, *words: str | Path, stdin: str = "") -> Completed:
    argv = [f"qemu-{MACHINE}-static", BIN / name, *words]
    return run(argv, timeout_seconds=300, input_text=stdin, check=False)


def end(done: Completed) -> dict[str, Any]:
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert last["type"] == "end"
    return last


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data.bin"
    file.write_bytes(os.urandom(DATA_BYTES))
    return file


@pytest.mark.parametrize("name", IN_C)
def test_a_program_in_c_is_static_and_of_its_architecture(built: Completed, name: str) -> None:
    head = (BIN / name).read_bytes()[:64]
    assert int.from_bytes(head[18:20], "little") == ELF_MACHINE
    assert b"/ld-linux" not in (BIN / name).read_bytes(), "the C library is linked in"


def test_both_architectures_read_the_same_sums(built: Completed, data: Path) -> None:
    words = ("--files", data, "--no-handshake")
    own = end(run([ROOT / "build/host/bin/pcscan-c", *words]))
    other = end(emulated("pcscan-c", *words))
    assert own["distinct_bytes"] == other["distinct_bytes"] == DATA_BYTES
    assert own["checksum"] == other["checksum"]


def test_a_log_has_the_checksums_that_the_other_architecture_checks(
    built: Completed, tmp_path: Path
) -> None:
    """pcappend verifies its log after the appends. CRC-32C has its own instructions on each."""
    words = ("--method", "pclog", "--framing", "framed", "--ops", "200", "--bytes", "16..3000")
    done = end(emulated("pcappend", "--dir", tmp_path, *words, "--no-handshake"))
    assert done["checksum_ok"] is True


def test_the_gate_becomes_the_program_after_go(built: Completed) -> None:
    assert emulated("pcgate", "/bin/echo", "reached", stdin="go\n").stdout == "\nreached\n"
    assert emulated("pcgate", "/bin/echo", "reached", stdin="").status == 1


def test_the_build_has_the_workloads_in_rust_or_says_why_not(built: Completed, data: Path) -> None:
    missing = [name for name in IN_RUST if not (BIN / name).exists()]
    if NOT_HERE in built.stderr:
        assert missing, "a workload of an earlier build was kept"
        assert f"rustup target add {MACHINE}-unknown-linux-gnu" in built.stderr
        return
    assert not missing
    own = end(run([ROOT / "build/host/bin/pcread", "--file", data, "--no-handshake"]))
    other = end(emulated("pcread", "--file", data, "--no-handshake"))
    assert own["checksum"] == other["checksum"]
    assert other["covered_fraction"] == 1.0
