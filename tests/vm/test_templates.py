"""The templates of workloads: made, built and run in the guest, as they are and broken."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command_line import pagecage_in

pytestmark = [pytest.mark.vm, pytest.mark.long]


@dataclass(frozen=True)
class Case:
    """A language, its build, and a change of the workload that breaks the handshake."""

    language: str
    build: tuple[str, ...]
    file: str
    old: str
    new: str
    error: str


CASES = (
    Case(
        "rust",
        ("cargo", "build", "--release", "--offline"),
        "pagecage-workload/src/handshake.rs",
        "PROTOCOL_VERSION: u32 = 1",
        "PROTOCOL_VERSION: u32 = 2",
        "it speaks version 2 of the handshake, and this pagecage speaks version 1: take the"
        " library from `pagecage init --template`",
    ),
    Case(
        "c",
        ("make",),
        "workload.c",
        "    double begun = now_seconds()",
        "    pagecage_wait_for_go(0);\n    double begun = now_seconds()",
        "it printed `ready` twice",
    ),
    Case(
        "python",
        (),
        "workload.py",
        "        begun, seconds = ",
        '        print("reading", path, flush=True)\n        begun, seconds = ',
        "it printed a line that is not a JSON object: 'reading ",
    ),
)


def build(folder: Path, case: Case) -> None:
    if case.build:
        path = f"{os.environ['PATH']}:{Path.home() / '.cargo/bin'}"
        own = folder / "workloads/mine"
        subprocess.run(case.build, cwd=own, env={**os.environ, "PATH": path}, check=True)


def records(folder: Path) -> list[dict[str, Any]]:
    newest = (folder / "runs/latest-mine").resolve()
    lines = (newest / "records.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.language)
def test_a_template_is_measured_and_a_broken_one_is_not(case: Case, tmp_path: Path) -> None:
    made = pagecage_in(tmp_path, "init", "--template", case.language)
    assert made.ok, made.stderr
    build(tmp_path, case)
    done = pagecage_in(tmp_path, "run", "mine", "--host", "vm", "--dataset", "smoke")
    assert done.status == 0, done.stderr
    found = {record["treatment"]["cage"]: record for record in records(tmp_path)}
    assert set(found) == {"uncaged", "slow-disk"}
    for record in found.values():
        assert (record["outcome"], record["error"]) == ("ok", None)
        assert record["response"]["slowest_block_us"] > 0
        assert record["response"]["device_read_bytes"] >= 16 * 2**20
    seconds = found["slow-disk"]["response"]["read_seconds"]
    assert seconds > 0.7 * 16 * 2**20 / 20e6, "the cage holds 20 MB/s"

    text = (tmp_path / "workloads/mine" / case.file).read_text()
    assert case.old in text
    (tmp_path / "workloads/mine" / case.file).write_text(text.replace(case.old, case.new))
    build(tmp_path, case)
    words = ("--host", "vm", "--dataset", "smoke", "--treatment", "cage=uncaged")
    broken = pagecage_in(tmp_path, "run", "mine", *words)
    assert broken.status == 4, broken.stderr
    assert "Traceback" not in broken.stderr
    for record in records(tmp_path):
        assert record["outcome"] == "failed"
        assert record["error"].startswith(case.error)
        assert record["response"] == {}
