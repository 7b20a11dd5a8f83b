"""The packages of experiments that an image contains, and the choice among cached images.

An image per experiment would cost minutes and a gigabyte each. So an image serves every experiment
whose packages it contains.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pagecage.digests import text_sha256
from pagecage.hosts.vm.image.guest_image import GuestImage
from pagecage.hosts.vm.image.recipe import ImageRecipe


@dataclass(frozen=True)
class ImageContents:
    """The key of an image's base, and the packages of experiments that it contains.

    `installer` is the hash of the script that installed them, None without such packages.
    """

    base_key: str
    extra_packages: frozenset[str]
    installer: str | None = None

    def lacks(self, packages: Sequence[str]) -> list[str]:
        """Return those of the packages that are not in the image."""
        return [name for name in packages if name not in self.extra_packages]


def read_contents(image: GuestImage) -> ImageContents:
    """Return the contents of an image. One without a description is its own base."""
    try:
        stored = json.loads(image.contents.read_text())
        return ImageContents(
            stored["base_key"], frozenset(stored["extra_packages"]), stored["installer"]
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ImageContents(image.key, frozenset())


def write_contents(image: GuestImage, recipe: ImageRecipe) -> None:
    """Describe an image of this recipe."""
    contents = {
        "base_key": recipe.base_key,
        "extra_packages": recipe.extra_packages,
        "installer": _installer(recipe),
    }
    image.contents.write_text(json.dumps(contents))


def find_image(images: Path, recipe: ImageRecipe) -> GuestImage | None:
    """Return the smallest image with the base and all packages of a recipe, or None."""
    cached = (GuestImage(path) for path in images.iterdir() if path.suffix != ".part")
    fitting = [image for image in cached if _fits(read_contents(image), recipe)]
    return min(fitting, key=lambda image: (_allocated_bytes(image.disk), image.key), default=None)


def _fits(contents: ImageContents, recipe: ImageRecipe) -> bool:
    if contents.base_key != recipe.base_key or contents.lacks(recipe.extra_packages):
        return False
    return contents.installer == _installer(recipe) or not recipe.extra_packages


def _installer(recipe: ImageRecipe) -> str | None:
    if not recipe.extra_packages:
        return None
    return text_sha256(recipe.install_extra)[:16]


def _allocated_bytes(disk: Path) -> int:
    """Return the allocated bytes of a file (st_blocks counts 512 bytes; inode(7))."""
    return disk.stat().st_blocks * 512 if disk.exists() else 0
