"""Files that somebody else's program reads: found, on one disk, and ours to look at."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from pagecage.agent.system.block_device import Disk
from pagecage.errors import HostError
from pagecage.model.requirements import MissedRequirement, Requirement
from pagecage.model.trial import Dataset
from pagecage.process import run
from pagecage.units import format_bytes


def find_files(paths: tuple[Path, ...]) -> tuple[Path, ...] | MissedRequirement:
    """Every regular file among the paths and below them, each once, in order; symbolic links below are not followed."""
    found: dict[tuple[int, int], Path] = {}
    for path in paths:
        if not path.exists():
            return MissedRequirement(
                Requirement.DATA, f"there is no {path}", "name what is there, or carry it with --copy"
            )
        found |= {_identity(file): file for file in _files_of(path)}
    files = tuple(sorted(found.values()))
    if not files:
        return MissedRequirement(
            Requirement.DATA, f"there is no file in {', '.join(map(str, paths))}", "name files, or leave --cold out"
        )
    hidden = next((file for file in files if not _is_ours(file)), None)
    if hidden:
        reason = f"{hidden} is neither ours nor ours to write, so the kernel does not tell whether it is cached"
        return MissedRequirement(Requirement.DATA, reason, "run as its owner or as root, or leave --cold out")
    return files


def _identity(file: Path) -> tuple[int, int]:
    """Device and inode: two names of one file have the same pages."""
    status = file.stat()
    return status.st_dev, status.st_ino


def _files_of(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for folder, _, names in os.walk(path):
        candidates = (Path(folder, name) for name in names)
        yield from (file for file in candidates if file.is_file() and not file.is_symlink())


def _is_ours(file: Path) -> bool:
    """Who may ask for residency (mm/mincore.c, can_do_mincore): its owner, or who may write it; and it must open."""
    owned = os.getuid() in (0, file.stat().st_uid)
    return os.access(file, os.R_OK) and (owned or os.access(file, os.W_OK))


def common_disk(places: tuple[Path, ...], resolve: Callable[[Path], Disk]) -> Disk | MissedRequirement:
    """The one disk behind all files; a device number is resolved once. Raises HostError where there is no disk."""
    first: dict[int, Path] = {}
    for place in places:
        first.setdefault(place.stat().st_dev, place)
    disks = {disk.maj_min: (disk, place) for place in first.values() for disk in [resolve(place)]}
    if len(disks) > 1:
        told = " and ".join(f"{place} on {disk.node}" for disk, place in list(disks.values())[:2])
        return MissedRequirement(
            Requirement.LOCAL_DISK, f"a cage limits one disk, and there is {told}", "name files of one disk"
        )
    return next(iter(disks.values()))[0]


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
