import tarfile
from pathlib import Path

import pytest

from pagecage.errors import HostError
from pagecage.hosts.vm import image
from pagecage.hosts.vm.image import (
    DEBIAN,
    UBUNTU,
    archive_of,
    debian_keyring,
    read_recipe,
    require_architecture,
    usable_keyring,
)

IN_PACKAGE = "./usr/share/keyrings/ubuntu-archive-keyring.gpg"


@pytest.fixture
def keyrings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of installed keyrings, with Debian's."""
    folder = tmp_path / "keyrings"
    folder.mkdir()
    (folder / "debian-archive-keyring.gpg").touch()
    monkeypatch.setattr(image, "KEYRINGS", folder)
    return folder


def install_mmdebstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Put an mmdebstrap first on PATH that notes its arguments; return the notes' path."""
    path, notes = tmp_path / "bin/mmdebstrap", tmp_path / "arguments"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {notes}\n{script}\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    return notes


def test_debians_keyring_is_named_because_mmdebstrap_finds_it_only_with_gpg(keyrings: Path) -> None:
    old = keyrings / "debian-archive-keyring.gpg"
    newest = keyrings / "debian-archive-keyring.pgp"
    newest.touch()
    assert debian_keyring() == old
    old.unlink()
    with usable_keyring(DEBIAN, keyrings) as found:
        assert found == newest
    newest.unlink()
    with pytest.raises(HostError, match="keyring of Debian's archive is not in"):
        debian_keyring()


def test_a_suite_has_the_archive_of_its_distribution() -> None:
    assert [archive_of(suite) for suite in ("noble", "trixie", "bookworm")] == [
        *(UBUNTU, DEBIAN, DEBIAN)
    ]


def test_ubuntus_installed_keyring_is_used(
    keyrings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = install_mmdebstrap(tmp_path, monkeypatch, "exit 1")
    (keyrings / "ubuntu-archive-keyring.gpg").touch()
    with usable_keyring(UBUNTU, tmp_path) as found:
        assert found == keyrings / "ubuntu-archive-keyring.gpg"
    assert not notes.exists()


def test_without_it_the_keyring_is_that_of_debians_package_and_is_removed_afterwards(
    keyrings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "package"
    source.write_bytes(b"keys")
    with tarfile.open(tmp_path / "package.tar", "w") as tar:
        tar.add(source, IN_PACKAGE)
    copy = f'for last; do :; done; cp {tmp_path}/package.tar "$last"'
    notes = install_mmdebstrap(tmp_path, monkeypatch, copy)
    folder = tmp_path / "part"
    folder.mkdir()
    with usable_keyring(UBUNTU, folder) as found:
        assert found.read_bytes() == b"keys"
        assert found.stat().st_mode & 0o444 == 0o444, "apt's own user reads it"
        assert found.parent.stat().st_mode & 0o555 == 0o555
    assert list(folder.iterdir()) == []
    arguments = notes.read_text().splitlines()
    assert "--include=ubuntu-archive-keyring" in arguments
    assert f"--keyring={keyrings}/debian-archive-keyring.gpg" in arguments, "Debian's verifies it"


@pytest.mark.parametrize(
    ("script", "reason"),
    [("echo 'E: no network' >&2; exit 1", "no network"), ("exit 0", "No such file")],
)
def test_a_keyring_that_cannot_be_had_is_one_sentence_with_its_fix(
    script: str, reason: str, keyrings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_mmdebstrap(tmp_path, monkeypatch, script)
    with (
        pytest.raises(HostError, match=r"Ubuntu's archive is not in.*" + reason) as caught,
        usable_keyring(UBUNTU, tmp_path),
    ):
        pass
    assert caught.value.hint == "sudo apt-get install ubuntu-archive-keyring"
    assert not list(tmp_path.glob("pagecage-keyring-*"))


def test_ubuntus_mirror_has_one_architecture(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for suite, arch in (("noble", "amd64"), ("trixie", "arm64"), ("bookworm", "amd64")):
        require_architecture(suite, arch)
    monkeypatch.setenv("PAGECAGE_MACHINE", "aarch64")
    with pytest.raises(HostError, match="a guest with Ubuntu is made for amd64 only") as caught:
        read_recipe(checkout, "noble")
    assert "--suite trixie" in caught.value.hint
