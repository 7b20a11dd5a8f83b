import os
from pathlib import Path

import pytest

from pagecage.errors import HostError
from pagecage.hosts.vm.image import ImageRecipe
from pagecage.hosts.vm.image_build import bootstrap_argv, shared_folder

RECIPE = ImageRecipe("trixie", "amd64", ("fio", "udev"), "echo made")
UBUNTU = ImageRecipe("noble", "amd64", ("fio", "modules-${KERNEL}"), "echo made", ("git",))
KEYRING = Path("/keys/archive.gpg")


def test_root_and_others_build_by_the_same_command() -> None:
    """Root makes a folder, to which the roles are applied; others a tar, which keeps owners."""
    roots, users = (
        bootstrap_argv(Path("/images/x.part"), RECIPE, KEYRING, as_root)
        for as_root in (True, False)
    )
    assert [word for word in roots if word not in users] == [
        "--mode=root",
        "--format=directory",
        "/images/x.part/root",
    ]
    assert [word for word in users if word not in roots] == ["--mode=unshare", "--format=tar", "-"]


@pytest.mark.parametrize(("noexec", "expected"), [((), "/tmp"), (("/tmp",), "/var/tmp")])
def test_an_ordinary_user_builds_where_programs_may_be_started(
    noexec: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    real = os.statvfs("/")
    flags = {
        folder: os.ST_NOEXEC if folder in noexec else 0 for folder in ("/tmp", "/var/tmp", "/other")
    }
    fields = [*real]
    monkeypatch.setattr(
        os, "statvfs", lambda folder: os.statvfs_result([*fields[:8], flags[folder], *fields[9:]])
    )
    assert shared_folder() == expected
    flags["/var/tmp"] = os.ST_NOEXEC
    if noexec:
        with pytest.raises(HostError, match="mounted noexec"):
            shared_folder()


@pytest.mark.parametrize("as_root", [True, False])
def test_debians_archive_is_mmdebstraps_own(as_root: bool) -> None:
    argv = bootstrap_argv(Path("/images/x.part"), RECIPE, KEYRING, as_root)
    assert argv[-2:] == ["trixie", "/images/x.part/root" if as_root else "-"]
    assert f"--keyring={KEYRING}" in argv
    assert not [word for word in argv if "ubuntu" in word]


def test_ubuntus_archive_is_named_with_its_updates() -> None:
    argv = bootstrap_argv(Path("/images/x.part"), UBUNTU, KEYRING, False)
    archive = "deb http://archive.ubuntu.com/ubuntu noble"
    assert argv[argv.index("noble") :] == [
        *("noble", "-", f"{archive} main universe", f"{archive}-updates main universe"),
        f"{archive}-security main universe",
    ]


def test_packages_of_the_kernel_are_installed_after_it_and_before_those_of_experiments() -> None:
    argv = bootstrap_argv(Path("/images/x.part"), UBUNTU, KEYRING, False)
    assert "--include=fio" in argv
    installs = [word for word in argv if "apt-get" in word or "install-extra.sh git" in word]
    assert len(installs) == 2
    assert "KERNEL=$(ls /lib/modules)" in installs[0]
    assert installs[0].endswith('install "modules-${KERNEL}"\'')
    assert not [
        word
        for word in bootstrap_argv(Path("/images/x.part"), RECIPE, KEYRING, False)
        if "apt-get" in word
    ]
