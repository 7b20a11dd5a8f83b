"""The files of a trial: datasets, and files of commands that pagecage did not make."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pagecage.errors import HostError
from pagecage.linux.block_device import Disk
from pagecage.linux.page_cache import cachestat_pages
from pagecage.model.requirements import Requirement, RequirementMissed
from pagecage.model.trial import Dataset, Trial
from pagecage.process import run
from pagecage.units import LEAST_PAGE_BYTES, MIB, format_bytes


def find_files(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the regular files among and below the paths, each once, sorted; links are skipped.

    Raises RequirementMissed if there are none, or if the kernel hides their pages.
    """
    found: dict[tuple[int, int], Path] = {}
    for path in paths:
        if not path.exists():
            fix = "name an existing path, or copy it with --copy"
            raise RequirementMissed.of(Requirement.DATA, f"{path} does not exist", fix)
        below = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        regular = (file for file in below if file.is_file() and not file.is_symlink())
        for file in (*((path,) if path.is_file() else ()), *regular):
            status = file.stat()  # two names of one file have the same pages
            found[status.st_dev, status.st_ino] = file
    files = tuple(sorted(found.values()))
    if not files:
        reason = f"no file in {', '.join(map(str, paths))}"
        raise RequirementMissed.of(Requirement.DATA, reason, "name files, or omit --cold")
    for file in files:
        # The kernel shows residency to the owner and to users with write access
        # (mm/mincore.c, can_do_mincore). The file must also be readable, for mincore to be called.
        owned = os.getuid() in (0, file.stat().st_uid)
        if not (os.access(file, os.R_OK) and (owned or os.access(file, os.W_OK))):
            hidden = "so the kernel hides whether it is cached"
            reason = f"{file} belongs to another user and is read-only, {hidden}"
            fix = "run as its owner or as root, or omit --cold"
            raise RequirementMissed.of(Requirement.DATA, reason, fix)
    return files


def common_disk(paths: tuple[Path, ...], resolve: Callable[[Path], Disk]) -> Disk:
    """Return the disk that contains all paths. Raises RequirementMissed, or HostError for none."""
    first: dict[int, Path] = {}
    for path in paths:
        first.setdefault(path.stat().st_dev, path)
    disks = {disk.maj_min: (disk, path) for path in first.values() for disk in [resolve(path)]}
    if len(disks) > 1:
        found = " and ".join(f"{path} is on {disk.node}" for disk, path in list(disks.values())[:2])
        reason = f"a cage limits one disk, but {found}"
        raise RequirementMissed.of(Requirement.LOCAL_DISK, reason, "name files on one disk")
    return next(iter(disks.values()))[0]


_SAMPLED_PAGES = 64
_COMPRESSED_SHARE = 0.9
"""Random bytes do not compress at all; deflate makes them a little longer."""


def _require_random(path: Path, dataset: Dataset) -> None:
    """Raise HostError if random data are compressible: storage could then read less than asked."""
    if dataset.fill != "random" or dataset.size_bytes < _SAMPLED_PAGES * LEAST_PAGE_BYTES:
        return
    step = dataset.size_bytes // _SAMPLED_PAGES // LEAST_PAGE_BYTES * LEAST_PAGE_BYTES
    with path.open("rb", buffering=0) as file:
        descriptor, content = file.fileno(), b""
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for offset in range(0, _SAMPLED_PAGES * step, step):
            # Before Linux 6.5, which has no cachestat(2), the page is dropped even if it was there.
            was_cached = cachestat_pages(descriptor, offset, LEAST_PAGE_BYTES)
            content += os.pread(descriptor, LEAST_PAGE_BYTES, offset)
            if not was_cached:
                os.posix_fadvise(descriptor, offset, LEAST_PAGE_BYTES, os.POSIX_FADV_DONTNEED)
    if len(zlib.compress(content, 1)) < _COMPRESSED_SHARE * len(content):
        raise HostError(f"{path} is not random, although its sidecar says so", f"rm {path}")


SPARE_BYTES = 256 * MIB
"""Room that a dataset must leave free, also on a simulated volume."""
GENERATOR_VERSION = 2  # pcgen's: the bytes or the sidecar of another version may differ


def sidecar_of(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def is_whole(path: Path, dataset: Dataset) -> bool:
    """Return whether file and sidecar exist, match this dataset and pcgen, and are not sparse."""
    try:
        sidecar = json.loads(sidecar_of(path).read_text())
        stat = path.stat()
        same = tuple(sidecar[key] for key in ("generator_version", "size_bytes", "seed", "fill"))
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return same == (GENERATOR_VERSION, dataset.size_bytes, dataset.seed, dataset.fill) and (
        stat.st_size == dataset.size_bytes and stat.st_blocks * 512 >= stat.st_size
    )


def free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory).free


def require_room(directory: Path, need_bytes: int, what: str = "a dataset") -> None:
    """Raise HostError unless the disk has `need_bytes` for `what`, and 256 MiB free."""
    free = free_bytes(directory)
    if free < need_bytes + SPARE_BYTES:
        need, left = format_bytes(need_bytes), format_bytes(free)
        reason = f"{what} of {need} does not fit {directory} ({left} free)"
        raise HostError(reason, "choose a smaller SIZE, or free space there")


def make_room(
    others: Iterable[Path], has_room: Callable[[], bool], tell: Callable[[Path], None] | None = None
) -> None:
    """Remove files and folders that can be made again, the oldest first, until there is room.

    `tell` is called with each before it is removed.
    """
    for other in sorted(others, key=lambda path: path.lstat().st_mtime):
        if has_room():
            return
        if tell:
            tell(other)
        if other.is_dir() and not other.is_symlink():
            shutil.rmtree(other)
        else:
            other.unlink()


PREPARED_FOLDER = "prepared"
"""Folder of a data directory in which a trial's prepared data are kept."""


def leave_room(directory: Path, trials: Sequence[Trial], need_bytes: int) -> None:
    """Remove what other trials left on a disk of pagecage's own, if these trials' data do not fit.

    Their own files that are there already count as free.
    """
    if free_bytes(directory) >= need_bytes:
        return
    files = {data.file_name for trial in trials for data in trial.datasets}
    kept = {"lost+found"} | files | {sidecar_of(Path(name)).name for name in files}
    kept |= {PREPARED_FOLDER for trial in trials if trial.data is not None}
    own = (path for name in kept for path in (directory / name, *(directory / name).rglob("*")))
    held_bytes = sum(path.lstat().st_size for path in own if path.is_file())
    others = (path for path in directory.iterdir() if path.name not in kept)
    make_room(others, lambda: free_bytes(directory) + held_bytes >= need_bytes)


def make_dataset(dataset: Dataset, directory: Path, pcgen: Path) -> Path:
    """Return the dataset's path; make the file if needed. Raises HostError if it does not fit."""
    path = directory / dataset.file_name
    if is_whole(path, dataset):
        _require_random(path, dataset)
        return path
    directory.mkdir(parents=True, exist_ok=True)
    require_room(directory, dataset.size_bytes)
    content = ["--size-bytes", str(dataset.size_bytes), "--seed", str(dataset.seed)]
    argv: list[str | Path] = [pcgen, "--out", path, *content, "--fill", dataset.fill, "--force"]
    run(argv, timeout_seconds=3600)
    if not is_whole(path, dataset):
        raise HostError(f"pcgen left {path} incomplete", f"remove {path} and try again")
    return path
