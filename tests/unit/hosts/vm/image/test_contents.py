"""The choice of an image for an experiment's packages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.image import (
    GuestImage,
    ImageRecipe,
    find_image,
    read_contents,
    read_recipe,
    write_contents,
)
from pagecage.hosts.vm.image_build import ensure_image

BASE = ImageRecipe("trixie", "amd64", ("fio", "udev"), "echo made")
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
