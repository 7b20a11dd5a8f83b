"""`make audit`: what could not be checked is never reported as good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tree import ROOT

LOCKS = sorted(path.name for path in (ROOT / "requirements").glob("*.txt"))
CLEAN = {"dependencies": [{"name": "a", "version": "1", "vulns": []}]}
BAD = {"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1"}]}]}
CRATES = {"database": {"advisory-count": 700}, "vulnerabilities": {"list": []}}
EMPTY = {**CRATES, "database": {"advisory-count": 0}}
ADVISORY = {"package": {"name": "b", "version": "2"}, "advisory": {"id": "RUSTSEC-1"}}
BAD_CRATE = {**CRATES, "vulnerabilities": {"list": [ADVISORY]}}


def audit(folder: Path, **answers: str) -> tuple[int, str]:
    """Run it with programs that print an answer; without one, a program is missing."""
    for name, answer in answers.items():
        program = folder / name.replace("_", "-")
        (folder / name).write_text(answer)
        program.write_text(f'#!/bin/sh\ncat "{folder / name}"; echo "no network" >&2; exit 1\n')
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, ROOT / "tools/audit"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("answers", "status", "says"),
    [
        ({}, 3, "NOT CHECKED: pip-audit is not installed"),
        ({"pip_audit": json.dumps(CLEAN), "cargo_audit": json.dumps(CRATES)}, 0, "Cargo.lock: 0"),
        ({"pip_audit": json.dumps(BAD), "cargo_audit": json.dumps(CRATES)}, 1, "a 1: PYSEC-1"),
        ({"pip_audit": json.dumps(CLEAN), "cargo_audit": json.dumps(BAD_CRATE)}, 1, "RUSTSEC-1"),
        ({"pip_audit": "", "cargo_audit": json.dumps(CRATES)}, 3, "could not check it: no network"),
        ({"pip_audit": json.dumps(CLEAN), "cargo_audit": "{}"}, 3, "Cargo.lock: NOT CHECKED"),
        ({"pip_audit": json.dumps(CLEAN), "cargo_audit": json.dumps(EMPTY)}, 3, "NOT CHECKED"),
        ({"pip_audit": json.dumps(BAD), "cargo_audit": ""}, 1, "Cargo.lock: NOT CHECKED"),
    ],
)
def test_the_status_tells_what_was_checked(
    tmp_path: Path, answers: dict[str, str], status: int, says: str
) -> None:
    found, said = audit(tmp_path, **answers)
    assert found == status, said
    assert says in said
    for name in LOCKS:
        assert f"requirements/{name}: " in said
