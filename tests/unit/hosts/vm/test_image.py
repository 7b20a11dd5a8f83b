"""The recipe of an image, its keyrings, and the choice of an image for an experiment."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pagecage.errors import HostError
from pagecage.hosts.vm import image
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.image import (
    DEBIAN,
    UBUNTU,
    GuestImage,
    ImageRecipe,
    archive_of,
    debian_keyring,
    find_image,
    parse_packages,
    read_contents,
    read_recipe,
    require_architecture,
    usable_keyring,
    write_contents,
)
from pagecage.hosts.vm.image_build import ensure_image
from tests.builders.programs import install

RECIPE = ImageRecipe("trixie", "amd64", ("fio", "udev"), "echo made")


def test_list_has_a_package_a_line() -> None:
    text = "# tools\nfio\n\nlinux-image-cloud-${ARCH}  # kernel\n"
    assert parse_packages(text, "arm64", "trixie") == ("fio", "linux-image-cloud-arm64")


def test_a_release_is_not_asked_for_what_it_lacks() -> None:
    text = "docker.io\ndocker-cli [!bookworm]  # within docker.io there\n"
    assert parse_packages(text, "amd64", "trixie") == ("docker.io", "docker-cli")
    assert parse_packages(text, "amd64", "bookworm") == ("docker.io",)


def test_a_package_for_one_release_alone() -> None:
    text = "linux-virtual [noble]\nlinux [!noble] [!bookworm]\nboth [trixie] [bookworm]\nfio\n"
    assert parse_packages(text, "amd64", "noble") == ("linux-virtual", "fio")
    assert parse_packages(text, "amd64", "bookworm") == ("both", "fio")
    assert parse_packages(text, "amd64", "trixie") == ("linux", "both", "fio")


@pytest.mark.parametrize(
    "other",
    [
        replace(RECIPE, suite="sid"),
        replace(RECIPE, arch="arm64"),
        replace(RECIPE, packages=("fio",)),
        replace(RECIPE, packages=("fioudev",)),
        replace(RECIPE, customize="echo made "),
    ],
)
def test_key_changes_with_every_ingredient(other: ImageRecipe) -> None:
    assert other.key != RECIPE.key
    assert replace(RECIPE).key == RECIPE.key


def test_a_guest_of_another_suite_is_another_image(checkout: Path) -> None:
    ours, other = read_recipe(checkout), read_recipe(checkout, "bookworm")
    assert other.suite == "bookworm"
    assert set(ours.packages) - set(other.packages) == {"docker-cli"}
    assert other.key != ours.key


def test_ubuntu_has_its_own_kernel_and_its_own_part_of_the_script(checkout: Path) -> None:
    debian, ubuntu = read_recipe(checkout), read_recipe(checkout, "noble")
    assert "linux-image-virtual" in ubuntu.first_packages
    assert ubuntu.kernel_packages == ("linux-modules-extra-${KERNEL}",)
    assert not [name for name in ubuntu.packages if "cloud" in name or name == "docker-cli"]
    assert debian.kernel_packages == ()
    assert debian.customize == (checkout / "containers/guest/customize.sh").read_text()
    assert ubuntu.customize.startswith(debian.customize)
    assert "ssh.socket" in ubuntu.customize.removeprefix(debian.customize)


@pytest.mark.parametrize("suite", ["trixie", "bookworm", "noble"])
def test_guest_holds_what_the_base_role_asks_for(checkout: Path, suite: str) -> None:
    """The guest has no network: a package that the role wants and the image lacks could not be
    installed there.
    """
    names = yaml.safe_load((checkout / "ansible/roles/base/vars/debian.yml").read_text())
    assert set(names["base_family_packages"]) <= set(read_recipe(checkout, suite).packages)


BASE = RECIPE
GIT = replace(BASE, extra_packages=("git",), install_extra="apt-get install")
BOTH = replace(GIT, extra_packages=("git", "postgresql"))


def store(images: Path, recipe: ImageRecipe, disk_bytes: int = 4096) -> GuestImage:
    image = GuestImage(images / recipe.key)
    image.directory.mkdir()
    image.disk.write_bytes(b"x" * disk_bytes)
    write_contents(image, recipe)
    return image


def test_packages_of_an_experiment_are_in_the_key_and_the_base_stays() -> None:
    assert len({BASE.key, GIT.key, BOTH.key}) == 3
    assert BOTH.base_key == GIT.base_key == BASE.key
    assert replace(GIT, install_extra="apt install").key != GIT.key
    assert replace(BASE, install_extra="apt install").key == BASE.key


def test_the_smallest_image_with_all_packages_is_taken(tmp_path: Path) -> None:
    assert find_image(tmp_path, GIT) is None
    large = store(tmp_path, BOTH, 100_000)
    assert find_image(tmp_path, GIT) == find_image(tmp_path, BASE) == large
    small = store(tmp_path, GIT)
    assert find_image(tmp_path, GIT) == small
    assert find_image(tmp_path, BOTH) == large
    assert find_image(tmp_path, replace(GIT, extra_packages=("redis",))) is None


def test_a_package_of_the_base_needs_no_other_image(checkout: Path) -> None:
    base = read_recipe(checkout)
    assert read_recipe(checkout, packages=["default-jre-headless"]).key == base.key
    assert read_recipe(checkout, packages=["git", "fio"]).extra_packages == ("git",)


def test_an_image_of_another_base_is_not_taken(tmp_path: Path) -> None:
    store(tmp_path, BOTH)
    assert find_image(tmp_path, replace(GIT, suite="bookworm")) is None
    assert find_image(tmp_path, replace(GIT, customize="echo other")) is None


def test_an_image_made_by_an_older_installer_serves_only_without_packages(tmp_path: Path) -> None:
    old = store(tmp_path, BOTH)
    assert find_image(tmp_path, replace(GIT, install_extra="apt-get install --newer")) is None
    assert find_image(tmp_path, BASE) == old


def test_an_unfinished_image_is_not_taken(tmp_path: Path) -> None:
    made = store(tmp_path, GIT)
    made.directory.rename(made.directory.with_suffix(".part"))
    assert find_image(tmp_path, GIT) is None


@pytest.mark.parametrize("text", [None, "", "[]", '{"base_key": "x"}'])
def test_an_image_without_a_description_is_its_own_base(tmp_path: Path, text: str | None) -> None:
    image = store(tmp_path, BASE)
    image.contents.unlink()
    if text is not None:
        image.contents.write_text(text)
    assert read_contents(image).base_key == BASE.key
    assert find_image(tmp_path, BASE) == image
    assert find_image(tmp_path, GIT) is None


def test_an_image_with_more_packages_is_used_instead_of_building(tmp_path: Path) -> None:
    cache = GuestCache(tmp_path / "vm")
    cache.make()
    large = store(cache.images, BOTH)
    steps: list[str] = []
    assert ensure_image(cache, BASE, steps.append) == large
    assert not steps


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
    install(path, f'#!/bin/sh\nprintf "%s\\n" "$@" > {notes}\n{script}\n')
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
    archives = [archive_of(suite) for suite in ("noble", "trixie", "bookworm")]
    assert archives == [UBUNTU, DEBIAN, DEBIAN]


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
