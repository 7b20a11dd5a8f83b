import os
from pathlib import Path

import pytest

from pagecage.errors import HostError
from pagecage.hosts.vm.image.bootstrap import bootstrap_argv, debian_keyring, shared_folder
from pagecage.hosts.vm.image.recipe import ImageRecipe

RECIPE = ImageRecipe("trixie", "amd64", ("fio", "udev"), "echo made")


def test_root_and_others_build_by_the_same_command() -> None:
    """Root makes a folder, to which the roles are applied; others a tar, which keeps owners."""
    roots, users = (
        bootstrap_argv(Path("/images/x.part"), RECIPE, as_root) for as_root in (True, False)
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


def test_debians_keyring_is_named_because_mmdebstrap_finds_it_only_with_gpg(tmp_path):
    with pytest.raises(HostError, match="keyring of Debian's archive is not in"):
        debian_keyring(tmp_path)
    newest = tmp_path / "debian-archive-keyring.pgp"
    newest.touch()
    assert debian_keyring(tmp_path) == newest
    (tmp_path / "debian-archive-keyring.gpg").touch()
    assert debian_keyring(tmp_path).suffix == ".gpg"
    assert f"--keyring={debian_keyring()}" in bootstrap_argv(Path("/images/x.part"), RECIPE, True)
