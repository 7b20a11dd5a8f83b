"""The packed form of an image: a compressed disk and the files beside it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pagecage.checkout import BUILD
from pagecage.errors import HostError
from pagecage.hosts.architecture import target_machine
from pagecage.hosts.vm.image.guest_image import GuestImage
from pagecage.process import find_tool, run
from pagecage.whole_files import whole_folder

PACKED_DISK = "root.img.xz"
FOLDER_VARIABLE = "PAGECAGE_PACKED_GUESTS"
"""Names a folder of packed images outside the checkout."""
_PRESET = 6
_FILTERS = {"x86_64": ["--x86"]}
"""Filters that make machine code of the guest compress better, by a tenth (xz(1))."""


def packed_directory(key: str) -> Path:
    """Return the path of the packed image of a recipe's key; it may be missing."""
    return Path(os.environ.get(FOLDER_VARIABLE) or BUILD / "guest") / key


def pack(image: GuestImage, packed: Path) -> None:
    """Pack an image's disk and the files beside it into a new directory.

    All users may read it, the guest's private key included.
    """
    packed.parent.mkdir(parents=True, exist_ok=True)
    filters = [*_FILTERS.get(target_machine(), []), f"--lzma2=preset={_PRESET}"]
    with whole_folder(packed) as part:
        for file in _files_beside(image):
            if file.exists():
                shutil.copyfile(file, part / file.name)
        _compress(["--compress", "--threads=0", *filters], image.disk, part / PACKED_DISK)
        for path in part.iterdir():
            path.chmod(0o644)


def unpack(packed: Path, image: GuestImage) -> None:
    """Make the disk and the files beside it from a packed image."""
    for file in _files_beside(image):
        if (packed / file.name).exists():
            shutil.copyfile(packed / file.name, file)
    _compress(["--decompress", "--threads=0"], packed / PACKED_DISK, image.disk)


def require_xz() -> None:
    """Raise HostError if xz(1) is not installed."""
    if find_tool("xz") is None:
        raise HostError(
            "xz is not installed; it packs the guest's image", "apt-get install xz-utils"
        )


def _files_beside(image: GuestImage) -> tuple[Path, ...]:
    """Return the files of an image besides its disk; the last exists only if it was provisioned."""
    return *image.boot_files, image.provisioned


def _compress(words: list[str], source: Path, target: Path) -> None:
    """Run xz(1), which leaves out the holes of a file that it writes."""
    run(
        ["sh", "-c", 'exec xz --stdout "$@" < "$SOURCE" > "$TARGET"', "sh", *words],
        env={"SOURCE": str(source), "TARGET": str(target)},
    )
