"""The guest's image packed small, so that it travels with a copy of the checkout (docs/CONTAINERS.md).

A raw disk is mostly holes, which neither an archive nor a layer of a container image keeps.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pagecage.hosts.vm.cache import PROJECT_DIR
from pagecage.process import run

PACKED_DISK = "root.qcow2"
_DISK = "root.img"
_IDENTITY = "id_ed25519"
_BESIDE = ("vmlinuz", "initrd.img", "known_hosts", _IDENTITY)


def packed_directory(key: str) -> Path:
    """Where the packed image of a recipe's key lies, if there is one."""
    return PROJECT_DIR / "build/guest" / key


def pack(image: Path, packed: Path) -> None:
    """Pack the image in one directory into another, which must not be there.

    Everybody may read it, the key to the guest too: whoever has the copy may start the guest.
    """
    part = packed.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name in _BESIDE:
        (part / name).write_bytes((image / name).read_bytes())
        (part / name).chmod(0o644)
    _convert(image / _DISK, "raw", part / PACKED_DISK, "qcow2", "-c", "-o", "compression_type=zstd")
    part.rename(packed)


def unpack(packed: Path, image: Path) -> None:
    """Put a packed image into a directory, as ensure_image() leaves one."""
    for name in _BESIDE:
        (image / name).write_bytes((packed / name).read_bytes())
    (image / _IDENTITY).chmod(0o600)  # ssh refuses a key that others may read
    _convert(packed / PACKED_DISK, "qcow2", image / _DISK, "raw")


def _convert(source: Path, source_format: str, target: Path, target_format: str, *how: str) -> None:
    run(["qemu-img", "convert", "-q", "-f", source_format, "-O", target_format, *how, source, target])
