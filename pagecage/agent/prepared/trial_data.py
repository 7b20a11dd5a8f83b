"""The data of a trial: made if they are not there yet, and restored if trials write to them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pagecage.agent.data_files import require_room
from pagecage.agent.prepared.preparation import key_of, make_data
from pagecage.agent.prepared.saved_tree import (
    MANIFEST,
    Restoration,
    SavedTree,
    changed_path,
    read_saved,
    restore,
    save,
)
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import NotPrepared, RequirementMissed, TrialRun
from pagecage.errors import HostError
from pagecage.model.requirements import Requirement
from pagecage.model.trial_data import DATA, ORIGINAL, TrialData
from pagecage.units import format_bytes, format_seconds
from pagecage.whole_files import sync_folder

FOLDER = "prepared"
MakeDatasets = Callable[[], tuple[Path, ...]]


def prepare_data(run: TrialRun, storage: Storage, make_datasets: MakeDatasets) -> None:
    """Make or restore the trial's data, and keep what it took; nothing for a trial without any.

    Raises RequirementMissed if the host lacks a program, and NotPrepared if the data are not as
    they should be.
    """
    data = run.trial.data
    if data is None:
        return
    if storage.kind == "container_layer":
        reason = "prepared data are on a disk, and this trial's files are in a container's layer"
        raise RequirementMissed.of(Requirement.STORAGE, reason, "use storage data")
    try:
        _prepare(run, data, storage, make_datasets)
    except HostError as error:
        raise NotPrepared(error.message) from None
    except OSError as error:
        raise NotPrepared(f"{error.filename or storage.data_dir}: {error.strerror}") from None


def _prepare(run: TrialRun, data: TrialData, storage: Storage, make_datasets: MakeDatasets) -> None:
    base, work = _folders(run, data, storage)
    original = ORIGINAL if data.writes else DATA
    saved = read_saved(base, original)
    if saved is None:
        saved = _make(run, data, base, original, make_datasets)
    os.utime(base)
    run.data_directory = work / DATA
    run.keep(
        "data",
        directory=str(work / DATA),
        **({"key": base.name} if data.prepare else {}),
        entries=len(saved.entries),
        size_bytes=saved.size_bytes,
        manifest_sha256=saved.sha256,
    )
    if not data.writes and work == base:
        if changed := changed_path(saved):
            raise NotPrepared(
                f"{base / DATA} was written to: {changed}; set writes = true under [data], or"
                f" remove {base} to have it made again"
            )
        return
    work.mkdir(mode=0o755, parents=True, exist_ok=True)
    _tell_before(run, saved, work)
    done = restore(saved, work, _machine(run))
    run.keep("data", restored=vars(done))
    _tell_after(run, saved, done)


def _folders(run: TrialRun, data: TrialData, storage: Storage) -> tuple[Path, Path]:
    """Return the directory of the saved tree, and that of the tree that the trial uses.

    They differ on a disk made for the trial, which begins empty.
    """
    if data.copied_to is not None:
        base = Path(data.copied_to)
        return base, base
    name = Path(FOLDER, key_of(run, data))
    return Path(run.session.request.data_dir) / name, storage.data_dir / name


def _make(
    run: TrialRun, data: TrialData, base: Path, original: str, make_datasets: MakeDatasets
) -> SavedTree:
    """Run the program in the place where the data will be, and save the result.

    Its manifest is written last, so that a directory that was left half made is made again.
    """
    if data.copied_to is not None:
        return save(base, original)
    datasets = make_datasets() if data.reads_datasets else ()
    shutil.rmtree(base, ignore_errors=True)
    (base / DATA).mkdir(parents=True)
    for path in (base.parent, base, base / DATA):
        path.chmod(0o755)  # the program may go on as another user
    try:
        _make_room(run, base, data.disk_bytes)
        argv = make_data(run, data, base / DATA, datasets)
        if original != DATA:
            (base / DATA).rename(base / original)
        sync_folder(base)
        saved = save(base, original)
    except BaseException:
        if not (base / MANIFEST).exists():
            shutil.rmtree(base, ignore_errors=True)
        raise
    run.keep("data", made_by=argv)
    return saved


def _make_room(run: TrialRun, base: Path, need_bytes: int) -> None:
    """Remove data of other keys, the least recently used first, until there is room.

    Raises HostError if there is too little even then.
    """
    others = [path for path in base.parent.iterdir() if path != base]
    for other in sorted(others, key=lambda path: path.stat().st_mtime):
        with suppress(HostError):
            require_room(base, need_bytes)
            return
        run.session.stream.event("notice", text=f"removing prepared data that take space: {other}")
        shutil.rmtree(other)
    require_room(base, need_bytes, "a directory")


def _machine(run: TrialRun) -> str:
    """Return the name of this machine state: the boot, and the restore of a guest's saved state."""
    machine = run.session.request.machine
    return f"{run.session.facts['boot_id']} {machine['state_id']} {machine['restore_seq']}"


def _tell_before(run: TrialRun, saved: SavedTree, work: Path) -> None:
    if work not in run.session.restored:
        size = format_bytes(saved.size_bytes)
        run.session.stream.event("step", text=f"restoring {size} of data in {work / DATA}")


def _tell_after(run: TrialRun, saved: SavedTree, done: Restoration) -> None:
    """Announce the restorations once in a session, with the time that the first one took."""
    base = saved.original.parent
    if base in run.session.restored:
        return
    run.session.restored.add(base)
    size, first = format_bytes(saved.size_bytes), format_seconds(done.seconds)
    run.session.stream.event(
        "notice",
        text=f"{size} of data are restored before each trial, by {done.method}; the first time"
        f" took {first}",
    )
