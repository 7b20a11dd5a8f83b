import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.errors import HostError
from pagecage.hosts.controller import require_free_space, require_tools
from pagecage.hosts.vm.cache import GuestCache, keep_newest
from pagecage.hosts.vm.image import GuestImage, ImageRecipe, pack
from pagecage.hosts.vm.image_build import (
    bootstrap_argv,
    ensure_image,
    provisioning_key,
    shared_folder,
)
from pagecage.units import MIB
from tests.builders.programs import install_first

RECIPE = ImageRecipe("trixie", "amd64", ("fio", "udev"), "echo made")


@pytest.fixture
def cache(tmp_path: Path) -> GuestCache:
    cache = GuestCache(tmp_path / "vm")
    cache.make()
    return cache


def fail_with(
    cache: GuestCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: str
) -> str:
    script = f"#!/bin/sh\necho half; echo '{complaint}' >&2; exit 1\n"
    install_first(tmp_path / "bin/mmdebstrap", script, monkeypatch)
    with pytest.raises(HostError) as caught:
        ensure_image(cache, RECIPE, lambda _: None)
    return str(caught.value)


def test_failed_build_leaves_nothing_that_looks_whole(
    cache: GuestCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fail_with(cache, tmp_path, monkeypatch, "E: no such suite")
    assert "E: no such suite" in said
    assert not (cache.images / RECIPE.key).exists()
    keep_newest(cache.images, 2)
    assert not list(cache.images.iterdir())


@pytest.mark.parametrize(
    ("complaint", "says"),
    [
        ("E: newuidmap: write failed", ("subordinate user ids", "make setup")),
        (
            "E: Unable to locate package postgre",
            ("package postgre", "`packages` in the experiment"),
        ),
    ],
    ids=["missing subordinate ids", "a package that Debian lacks"],
)
def test_what_failed_is_named(
    cache: GuestCache,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    complaint: str,
    says: tuple[str, str],
) -> None:
    said = fail_with(cache, tmp_path, monkeypatch, complaint)
    assert [part for part in says if part not in said] == []


@pytest.mark.parametrize(("suite", "name"), [("bookworm", "Debian"), ("noble", "Ubuntu")])
def test_the_message_names_the_distribution(
    suite: str, name: str, cache: GuestCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr("pagecage.hosts.vm.image_build.bootstrap", _refuse)
    for extra in ((), ("git",)):
        recipe = replace(RECIPE, suite=suite, extra_packages=extra)
        with pytest.raises(HostError, match="refused"):
            ensure_image(cache, recipe, steps.append)
    assert all(f"from {name} packages" in step for step in steps)
    assert len(steps) == 2


def _refuse(*_: object) -> None:
    raise HostError("refused")


def test_a_finished_image_is_not_built_again(cache: GuestCache) -> None:
    (cache.images / RECIPE.key).mkdir()
    steps: list[str] = []
    assert ensure_image(cache, RECIPE, steps.append).key == RECIPE.key
    assert not steps


def image_with_a_hole(directory: Path) -> GuestImage:
    directory.mkdir()
    for name in ("vmlinuz", "initrd.img", "known_hosts", "id_ed25519"):
        (directory / name).write_text(name)
    with (directory / "root.img").open("wb") as disk:
        disk.write(b"root" * 1000)
        disk.truncate(64 * MIB)
    return GuestImage(directory)


def test_a_packed_image_is_unpacked_instead_of_made(
    cache: GuestCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = image_with_a_hole(tmp_path / "made")
    packed = tmp_path / "checkout/build/guest" / RECIPE.key
    made.provisioned.write_text("roles")
    pack(made, packed)
    assert sum(path.stat().st_size for path in packed.iterdir()) < MIB, "holes take no room"
    modes = {path.stat().st_mode & 0o444 for path in packed.iterdir()}
    assert modes == {0o444}, "any user may unpack it"
    monkeypatch.setattr("pagecage.hosts.vm.image.BUILD", tmp_path / "checkout/build")
    image = ensure_image(cache, RECIPE, lambda _: None)
    assert image.disk.read_bytes() == made.disk.read_bytes()
    assert image.identity.stat().st_mode & 0o777 == 0o600, "ssh takes no other"
    assert image.kernel.read_text() == "vmlinuz"
    assert image.provisioned.read_text() == "roles"
    assert image.disk.stat().st_blocks * 512 < MIB, "holes are not filled"
    assert not list(cache.images.glob("*.part"))


def test_the_last_used_images_stay(tmp_path: Path) -> None:
    for age, name in enumerate(["new", "middle", "old", "building.part"]):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    keep_newest(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["middle", "new"]


def test_missing_tools_are_named_with_their_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    require_tools("sh")
    with pytest.raises(HostError, match=r"qemu-not-there is not installed.*\n.*make setup"):
        require_tools("sh", "qemu-not-there")


def test_a_full_disk_is_told_before_the_work(tmp_path: Path) -> None:
    require_free_space(tmp_path, 1, "a byte")
    with pytest.raises(HostError, match="free; the image needs"):
        require_free_space(tmp_path, 2**63, "the image")


UBUNTU = ImageRecipe("noble", "amd64", ("fio", "modules-${KERNEL}"), "echo made", ("git",))
KEYRING = Path("/keys/archive.gpg")


def test_root_and_others_build_by_the_same_command() -> None:
    """Root makes a folder, to which the roles are applied; others a tar, which keeps owners."""
    part = Path("/images/x.part")
    roots, users = (bootstrap_argv(part, RECIPE, KEYRING, as_root) for as_root in (True, False))
    of_root = ["--mode=root", "--format=directory", "/images/x.part/root"]
    assert [word for word in roots if word not in users] == of_root
    assert [word for word in users if word not in roots] == ["--mode=unshare", "--format=tar", "-"]


@pytest.mark.parametrize(("noexec", "expected"), [((), "/tmp"), (("/tmp",), "/var/tmp")])
def test_an_ordinary_user_builds_where_programs_may_be_started(
    noexec: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    real = os.statvfs("/")
    folders = ("/tmp", "/var/tmp", "/other")
    flags = {folder: os.ST_NOEXEC if folder in noexec else 0 for folder in folders}

    def statvfs(folder: str) -> os.statvfs_result:
        return os.statvfs_result([*real[:8], flags[folder], *real[9:]])

    monkeypatch.setattr(os, "statvfs", statvfs)
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
    others = bootstrap_argv(Path("/images/x.part"), RECIPE, KEYRING, False)
    assert not [word for word in others if "apt-get" in word]


@pytest.fixture
def copy(checkout: Path, tmp_path: Path) -> Path:
    for name in ("ansible", "cgroups"):
        shutil.copytree(checkout / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "matters"),
    [
        ("ansible/site.yml", True),
        ("ansible/roles/base/defaults/main.yml", True),
        ("ansible/roles/delegation/handlers/main.yml", True),
        ("cgroups/50-pagecage-delegation.conf", True),
        ("ansible/roles/base/README.md", False),
        ("ansible/roles/controller/defaults/main.yml", False),
        ("cgroups/smoke.toml", False),
    ],
)
def test_the_guest_is_fitted_again_when_what_fits_it_changes(
    checkout: Path, copy: Path, name: str, matters: bool
) -> None:
    assert provisioning_key(copy) == provisioning_key(checkout)
    with (copy / name).open("a") as file:
        file.write("\n# changed\n")
    assert (provisioning_key(copy) != provisioning_key(checkout)) is matters
