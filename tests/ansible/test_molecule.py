"""The roles on whole systems: provisioned twice, verified, unprovisioned, and compared with the
state before.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.checkout import TOP
from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.vm import guest
from pagecage.process import run
from tests.ansible.hosts import FOR_ROOT, MEMORY
from tests.tree import ROOT

BIN = ROOT / ".venv-ansible/bin"
SUITES = ("debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04")


@pytest.fixture
def place() -> Iterator[Path]:
    """The folder of root file systems: in memory, where packages unpack ten times as fast."""
    place = Path(tempfile.mkdtemp(prefix="pagecage-molecule-", dir=MEMORY))
    yield place
    place.rmdir()  # without its contents: file systems of a failed scenario may still be mounted


def molecule(place: Path, *words: str) -> str:
    """Return the output of Molecule for a successful scenario; otherwise fail with its end."""
    make_agent_package(TOP)
    plain = {"LC_ALL": "C.UTF-8", "NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1"}
    env = {**plain, "PATH": f"{BIN}:{os.environ['PATH']}", "PAGECAGE_ROOTFS": str(place)}
    folder, program = ROOT / "ansible", BIN / "molecule"
    done = run([program, *words], env=env, cwd=folder, check=False, timeout_seconds=1500)
    printed = f"{done.stdout}{done.stderr}"
    if not done.ok:
        pytest.fail(printed[-6000:], pytrace=False)
    return printed


@FOR_ROOT
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scenario", SUITES)
def test_a_root_file_system_is_made_fit_and_put_back(place: Path, scenario: str) -> None:
    printed = molecule(place, "-c", "molecule/shared/base.yml", "test", "--scenario-name", scenario)
    steps = ("converge", "idempotence", "verify", "side_effect", "destroy")
    for step in ("syntax", "create", "prepare", *steps):
        assert f"[{scenario} > {step}] Executed: Successful" in printed


@pytest.mark.vm
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_guest_is_made_fit_and_put_back_over_ssh(place: Path) -> None:
    guest.up(print)
    try:
        with guest.connected():
            printed = molecule(place, "test", "--scenario-name", "guest")
    finally:
        guest.down(print)
    for step in ("converge", "idempotence", "verify", "side_effect"):
        assert f"[guest > {step}] Executed: Successful" in printed
