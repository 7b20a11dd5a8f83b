"""The guest's image packed small, so that it travels with a copy of the checkout (docs/CONTAINERS.md).

A raw disk is mostly holes, which neither an archive nor a layer of a container image keeps.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from pagecage.hosts.vm.cache import PROJECT_DIR
from pagecage.process import run

PACKED_DISK = "root.qcow2"


def packed_directory(key: str) -> Path:
    """Where the packed image of a recipe's key lies, if there is one."""
    return PROJECT_DIR / "build/guest" / key


def pack(disk: Path, beside: Iterable[Path], packed: Path) -> None:
    """Pack an image's disk and what lies beside it into a directory, which must not be there.

    Everybody may read it, the key to the guest too: whoever has the copy may start the guest.
    """
    part = packed.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for file in beside:
        (part / file.name).write_bytes(file.read_bytes())
        (part / file.name).chmod(0o644)
    _convert(disk, "raw", part / PACKED_DISK, "qcow2", "-c", "-o", "compression_type=zstd")
    part.rename(packed)


def unpack(packed: Path, disk: Path, beside: Iterable[Path]) -> None:
    """Make the disk and what lies beside it from a packed image."""
    for file in beside:
        file.write_bytes((packed / file.name).read_bytes())
    _convert(packed / PACKED_DISK, "qcow2", disk, "raw")


def _convert(source: Path, source_format: str, target: Path, target_format: str, *how: str) -> None:
    run(["qemu-img", "convert", "-q", "-f", source_format, "-O", target_format, *how, source, target])
