"""The script that lists what this machine lacks, and the package names of every family of
systems.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from pagecage.process import run
from tests.ansible.hosts import FOR_ROOT
from tests.tree import ROOT

ROLE = ROOT / "ansible/roles/controller"
MISSING = ROLE / "files/missing.sh"
DEFAULTS = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
NEEDS = DEFAULTS["controller_needs"]
ALL = sorted({need for needs in NEEDS.values() for need in needs} - {"subids"})
CROSS = {"cross-gcc", "qemu-user", "arch-test", "qemu-system-cross"}
"""For tests of the other architecture; these systems' names for them are not known."""
UNPACKAGED = {
    "debian": set(),
    "redhat": CROSS,
    "archlinux": {"mmdebstrap", *CROSS},
    "alpine": {"mmdebstrap", "vmtouch", *CROSS},
    "suse": {"mmdebstrap", "vmtouch", "debian-keyring", "libfuzzer", "rustfmt", "clippy", *CROSS},
    "unknown": {*ALL},
}
TOOLS = ("sh", "id", "uname", "grep", "sort", "head", "cut", "cat")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder that is all of PATH: the programs that the script itself needs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return folder


def install(folder: Path, name: str, script: str = "") -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def missing(programs: Path, *needs: str, who: tuple[str, ...] = ()) -> list[str]:
    env = {"PATH": str(programs), "HOME": str(programs), "CARGO_HOME": str(programs)}
    return run([*who, "/bin/sh", MISSING, "1.85", *needs], env=env).stdout.split()


def test_what_is_not_there_is_named_in_order(programs: Path) -> None:
    needs = ("gcc", "static-libc", "rust", "mmdebstrap", "javac", "rustfmt", "libfuzzer", "sqlite3")
    assert [need for need in missing(programs, *needs) if need in needs] == [*needs]


def test_what_is_there_is_not_named(programs: Path) -> None:
    for name in ("gcc", "javac", "clang"):
        install(programs, name)
    install(programs, f"qemu-system-{os.uname().machine}")
    there = {"gcc", "static-libc", "javac", "qemu-system", "libfuzzer"}
    assert there & {*missing(programs, *ALL)} == set()


@pytest.mark.parametrize(
    ("cargo", "rustc", "lacks"),
    [
        ("cargo 1.85.0 (d73d2caf9 2024-12-31)", "rustc 1.85.0 (4d91de4e4 2025-02-17)", False),
        ("cargo 1.100.0", "rustc 1.100.0", False),
        ("cargo 1.84.1", "rustc 1.85.0", True),
        ("cargo 1.85.0", "", True),
        ("error: no default toolchain", "", True),
    ],
)
def test_a_rust_that_is_too_old_is_none(
    programs: Path, cargo: str, rustc: str, lacks: bool
) -> None:
    install(programs, "cargo", f"echo '{cargo}'")
    install(programs, "rustc", f"echo '{rustc}'")
    assert ("rust" in missing(programs, "rust")) is lacks


def test_a_compiler_without_the_static_library(programs: Path) -> None:
    install(programs, "gcc", "exit 1")
    assert missing(programs, "gcc", "static-libc")[0] == "static-libc"


@FOR_ROOT
def test_an_ordinary_user_is_told_how_he_becomes_root(programs: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    nobody = ("/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    lacking = missing(programs, "gcc", "subids", who=nobody)
    assert lacking == ["gcc", "subids", "become", "sudo", "password"]
    install(programs, "sudo", "exit 1")
    assert missing(programs, "gcc", who=nobody) == ["gcc", "become", "password"]
    install(programs, "sudo")
    assert missing(programs, "gcc", who=nobody) == ["gcc", "become"]
    assert missing(programs, "subids") == []


@pytest.mark.parametrize("family", UNPACKAGED)
def test_every_need_has_a_package_or_is_known_to_have_none(family: str) -> None:
    variables = yaml.safe_load((ROLE / f"vars/{family}.yml").read_text())
    packages = variables["controller_packages"]
    assert {*ALL} - {*packages} == UNPACKAGED[family]
    assert set(packages) <= {*ALL}
    for names in packages.values():
        assert names
        assert all(isinstance(name, str) for name in names)
    assert bool(variables["controller_install"]) is (family != "unknown")
    assert isinstance(variables["controller_options"], dict)


def test_no_purpose_but_the_guests_needs_qemu_or_mmdebstrap() -> None:
    for purpose, needs in NEEDS.items():
        assert bool({"qemu-system", "qemu-img", "mmdebstrap"} & {*needs}) is (purpose == "guest")
    assert set(DEFAULTS["controller_prevented"]) == set(NEEDS)
