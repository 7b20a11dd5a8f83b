"""The file that is read: made once by pcgen as the measuring user, named by its content, kept between trials."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pagecage.errors import HostError
from pagecage.process import run
from pagecage.trial import Dataset
from pagecage.units import format_bytes

_SPARE_BYTES = 256 * 1024**2
GENERATOR_VERSION = 2  # pcgen's own: another version's bytes, or what its sidecar tells of them, may differ


def sidecar_of(path: Path) -> Path:
    """The file beside the data that holds its checksums."""
    return path.with_name(path.name + ".json")


def is_whole(path: Path, dataset: Dataset) -> bool:
    """Whether the file is there with its sidecar, by this pcgen, of the right size and seed, not sparse."""
    try:
        sidecar = json.loads(sidecar_of(path).read_text())
        stat = path.stat()
        same = tuple(sidecar[key] for key in ("generator_version", "size_bytes", "seed", "fill"))
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return same == (GENERATOR_VERSION, dataset.size_bytes, dataset.seed, dataset.fill) and (
        stat.st_size == dataset.size_bytes and stat.st_blocks * 512 >= stat.st_size
    )


def require_room(directory: Path, need_bytes: int) -> None:
    """Raise HostError unless `need_bytes` and some spare fit the disk."""
    free = os.statvfs(directory)
    free_bytes = free.f_bavail * free.f_frsize
    if free_bytes < need_bytes + _SPARE_BYTES:
        raise HostError(
            f"a dataset of {format_bytes(need_bytes)} does not fit {directory} ({format_bytes(free_bytes)} free)",
            "choose a smaller SIZE, or free some space there",
        )


def make_dataset(dataset: Dataset, directory: Path, pcgen: Path) -> Path:
    """The dataset's path; made now if it is not there whole. Raises HostError when the disk has no room."""
    path = directory / dataset.file_name
    if is_whole(path, dataset):
        return path
    directory.mkdir(parents=True, exist_ok=True)
    require_room(directory, dataset.size_bytes)
    run(
        [pcgen, "--out", path, "--size-bytes", str(dataset.size_bytes), "--seed", str(dataset.seed),
         "--fill", dataset.fill, "--force"],
        timeout_seconds=3600,
    )  # fmt: skip
    if not is_whole(path, dataset):
        raise HostError(f"pcgen left {path} incomplete", f"remove {path} and try again")
    return path
