"""Versions of installed packages, asked of this machine's dpkg, and of an imitated rpm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pagecage.agent.facts import distribution_family, read_packages
from pagecage.model.trial import Package
from pagecage.process import run
from tests.builders.programs import install

NOT_THERE = Package("not-a-package", "not-a-package")


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("ID=debian\n", "debian"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "debian"),
        ("ID=fedora\n", "redhat"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "redhat"),
        ("ID=arch\n", None),
        ("", None),
    ],
)
def test_family_of_a_distribution(text: str, family: str | None) -> None:
    assert distribution_family(text) == family


def put(directory: Path, name: str, script: str) -> None:
    install(directory / name, f"#!/bin/sh\n{script}\n")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def read(directory: Path, distribution: str, *packages: Package) -> dict[str, Any]:
    path = directory / "os-release"
    path.write_text(f"ID={distribution}\n")
    return read_packages((*packages, NOT_THERE), path)


def test_versions_by_dpkg_with_those_of_direct_dependencies(programs: Path) -> None:
    """The output is that of dpkg-query on Debian 13, shortened."""
    lines = {
        "postgresql": "installed\\tpostgresql\\t17+278\\tpostgresql-17 (>= 17), sed:any | busybox",
        "postgresql-17": "installed\\tpostgresql-17\\t17.6-0+deb13u1\\t",
        "busybox": "config-files\\tbusybox\\t1.37\\t",
    }
    cases = "\n".join(f"  {name}) printf '{line}\\n' ;;" for name, line in lines.items())
    put(programs, "dpkg-query", f'for name; do case "$name" in\n{cases}\nesac; done; exit 1')
    found = {"postgresql": "17+278", "not-a-package": None, "postgresql-17": "17.6-0+deb13u1"}
    expected = {"family": "debian", "versions": found}
    assert read(programs, "debian", Package("postgresql", None)) == expected


def test_versions_by_rpm(programs: Path) -> None:
    script = (
        "printf 'installed\\tgit\\t2.47.3-1.fc41\\t\\npackage not-a-package is not installed\\n'"
    )
    put(programs, "rpm", f"{script}; exit 1")
    found = {"git": "2.47.3-1.fc41", "not-a-package": None}
    expected = {"family": "redhat", "versions": found}
    assert read(programs, "fedora", Package("git", "git")) == expected


def test_without_the_package_manager_no_package_is_known_to_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read(tmp_path, "fedora")["versions"] == {"not-a-package": None}


def test_the_packages_of_an_unknown_distribution_have_no_names(tmp_path: Path) -> None:
    assert read(tmp_path, "arch") == {"family": None, "versions": {}}


def test_this_machine_is_asked(tmp_path: Path) -> None:
    """Tests run on Debian or Ubuntu, where dpkg itself is a package."""
    version = run(["dpkg-query", "--show", "--showformat=${Version}", "dpkg"]).stdout
    found = read(tmp_path, "debian", Package("dpkg", None))["versions"]
    assert (found["dpkg"], found["not-a-package"]) == (version, None)
