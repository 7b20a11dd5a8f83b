"""The packed form of an image: a compressed disk and the boot files."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from pagecage.checkout import BUILD
from pagecage.process import run
from pagecage.whole_files import sync_tree

PACKED_DISK = "root.qcow2"


def packed_directory(key: str) -> Path:
    """Return the path of the packed image of a recipe's key; it may be missing."""
    return BUILD / "guest" / key


def pack(disk: Path, boot_files: Iterable[Path], packed: Path) -> None:
    """Pack an image's disk and its boot files into a new directory.

    All users may read it, the guest's private key included.
    """
    part = packed.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for file in boot_files:
        (part / file.name).write_bytes(file.read_bytes())
        (part / file.name).chmod(0o644)
    _convert(disk, "raw", part / PACKED_DISK, "qcow2", "-c", "-o", "compression_type=zstd")
    sync_tree(part)
    part.rename(packed)


def unpack(packed: Path, disk: Path, boot_files: Iterable[Path]) -> None:
    """Make the disk and the boot files from a packed image."""
    for file in boot_files:
        file.write_bytes((packed / file.name).read_bytes())
    _convert(packed / PACKED_DISK, "qcow2", disk, "raw")


def _convert(
    source: Path, source_format: str, target: Path, target_format: str, *options: str
) -> None:
    run(
        [
            "qemu-img",
            "convert",
            "-q",
            "-f",
            source_format,
            "-O",
            target_format,
            *options,
            source,
            target,
        ]
    )
