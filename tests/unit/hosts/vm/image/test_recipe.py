from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pagecage.hosts.vm.image import ImageRecipe, parse_packages, read_recipe

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
