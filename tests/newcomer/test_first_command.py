"""The two commands of the README on clean systems, from a clone to a report."""

from __future__ import annotations

import pytest

from tests.newcomer.machine import CAN_PIVOT, NO_PROGRAM_IN_TMP, NOEXEC, Machine, machine, printed

pytestmark = [CAN_PIVOT, pytest.mark.long, pytest.mark.timeout(3600)]


def measured(new: Machine, command: str, **options: str) -> None:
    """Run an experiment to its report as an ordinary user with sudo; in the guest, since no systemd
    runs here.
    """
    shown = "ls runs/latest-smoke/report.html"
    done = new.run(f"sudo -n true && {command} && {shown}", seconds=3000, **options)
    assert done.ok, printed(done)
    assert "Traceback" not in printed(done)
    assert "left behind" not in done.stderr, printed(done)


def test_debian_12() -> None:
    with machine("bookworm") as new:
        measured(new, "make experiment NAME=smoke")


def test_debian_13_with_umask_077_and_tmp_noexec() -> None:
    """Both matter when an ordinary user builds a root file system."""
    with machine("trixie") as new:
        measured(
            new, f"{NO_PROGRAM_IN_TMP} && umask 077 && make experiment NAME=smoke", prepare=NOEXEC
        )


def test_ubuntu_24_04_in_a_folder_with_spaces() -> None:
    with machine("noble", "/home/new/Prüfstand im Keller/pagecage 東京") as new:
        measured(new, "make experiment NAME=smoke", LANG="")
