"""Data that are prepared once by the definition's command and restored before each trial."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from pagecage.agent.data_files import PREPARED_FOLDER, make_room, require_room
from pagecage.agent.file_trees import (
    Signature,
    TreeEntry,
    TreeRestore,
    difference,
    is_on_disk,
    reflinks,
    scan,
    signatures,
    sync_file_system,
    total_bytes,
    with_digests,
)
from pagecage.agent.programs.command import command_places, fill, fill_all, program_path
from pagecage.agent.programs.gated_process import OutputTail
from pagecage.agent.programs.measured_part import describe_status
from pagecage.agent.storage import Storage
from pagecage.agent.trial_run import NotPrepared, TrialRun
from pagecage.errors import HostError
from pagecage.linux.processes import MARKER, kill_marked, leaves_marked
from pagecage.model.requirements import Requirement, RequirementMissed
from pagecage.model.trial import DATA, ORIGINAL, TrialData
from pagecage.process import PIPE, STDOUT, Process, TimeoutExpired
from pagecage.units import format_bytes, format_seconds
from pagecage.whole_files import sync_folder, write_whole

MANIFEST, STATE = "manifest.json", "state.json"
_TICK_SECONDS = 0.02  # longer than the grain of ctime, CONFIG_HZ=100
_KEY_CHARACTERS = 16
_TOLD_EVERY_SECONDS = 30.0
_CHILDREN_SECONDS = 0.5  # for the children of a program that has ended to end as well
_READ_BYTES = 65536


@dataclass(frozen=True)
class SavedTree:
    """The entries of an original, its signatures when it was hashed, and its manifest's hash."""

    original: Path
    entries: Mapping[str, TreeEntry]
    signatures: Mapping[str, Signature]
    sha256: str

    @property
    def size_bytes(self) -> int:
        return total_bytes(self.entries)


@dataclass(frozen=True)
class Restoration:
    """The work of making a tree equal to its original, by `method`: `reflink` or `copy`."""

    method: str
    changed_files: int
    copied_bytes: int
    seconds: float


def _read_saved(base: Path, original: str) -> SavedTree | None:
    try:
        text = (base / MANIFEST).read_bytes()
        manifest = json.loads(text)
        entries = {one["path"]: TreeEntry(**one) for one in manifest["entries"]}
        found = {path: tuple(one) for path, one in manifest["signatures"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return SavedTree(base / original, entries, found, hashlib.sha256(text).hexdigest())


def save(base: Path, original: str) -> SavedTree:
    """Read the finished tree once, and write its manifest when all of it is on disk."""
    root = base / original
    sync_file_system(root)
    time.sleep(_TICK_SECONDS)  # a later write then has another ctime
    found = signatures(root)
    entries = [asdict(entry) for entry in with_digests(root, scan(root)).values()]
    manifest = {"version": 1, "entries": entries, "signatures": found}
    write_whole(base / MANIFEST, json.dumps(manifest))
    saved = _read_saved(base, original)
    if saved is None:
        raise HostError(f"{base / MANIFEST} cannot be read again", f"rm -r {base}")
    return saved


def restore(saved: SavedTree, work: Path, machine: str) -> Restoration:
    """Make `work`/data equal to the original, on disk and proven, and out of the page cache.

    The original must have the signatures with which its contents were hashed. `machine` names the
    machine state: signatures of `data` from another one do not count, because a crash can lose a
    file's times and keep its content. They are removed first and written last: a restoration that
    was cut short is repeated in full. Raises HostError if the trees differ.
    """
    began, data = time.monotonic(), work / DATA
    if changed := _changed_path(saved):
        reason = f"{saved.original} was changed: {changed}"
        raise HostError(reason, f"rm -r {saved.original.parent}")
    unchanged: dict[str, Signature] = {}
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        state = json.loads((work / STATE).read_text())
        if (state["machine"], state["manifest"]) == (machine, saved.sha256):
            unchanged = {path: tuple(one) for path, one in state["signatures"].items()}
    (work / STATE).unlink(missing_ok=True)
    sync_folder(work)
    if not unchanged:
        held_bytes = total_bytes(scan(data)) if data.is_dir() else 0
        require_room(work, max(0, saved.size_bytes - held_bytes), "a copy")
    has_reflink = reflinks(saved.original.parent, work)
    run = TreeRestore(saved.original, data, saved.entries, unchanged, has_reflink=has_reflink)
    run.run()
    sync_file_system(work)
    # What was written is compared on the disk; the rest was found equal while it was restored.
    different = difference(saved.entries, scan(data))
    for path, pieces in run.changed.items():
        if not different and not is_on_disk(saved.original / path, data / path, pieces):
            different = f"{path} has another content"
    if different:
        raise HostError(f"{data} is not as it was: {different}", f"rm -r {data.parent}")
    time.sleep(_TICK_SECONDS)  # a later write then has another ctime
    found = {"machine": machine, "manifest": saved.sha256, "signatures": signatures(data)}
    write_whole(work / STATE, json.dumps(found))
    copied_bytes = sum(size for pieces in run.changed.values() for _, size in pieces)
    method, seconds = "reflink" if has_reflink else "copy", time.monotonic() - began
    return Restoration(method, len(run.changed), copied_bytes, seconds)


def _changed_path(saved: SavedTree) -> str | None:
    """Return the first path of the original that was written to, made or removed; None if none."""
    found = signatures(saved.original)
    paths = sorted(saved.signatures.keys() | found.keys())
    return next((one for one in paths if saved.signatures.get(one) != found.get(one)), None)


def prepare_data(run: TrialRun, storage: Storage) -> Storage:
    """Make or restore the data, if any. Raises RequirementMissed or NotPrepared."""
    if run.trial.data is None:
        return storage
    if storage.data.kind == "container_layer":
        reason = "prepared data are on a disk, and this trial's files are in a container's layer"
        raise RequirementMissed.of(Requirement.STORAGE, reason, "use storage data")
    try:
        return replace(storage, data_directory=DataPreparation(run, run.trial.data, storage).run())
    except HostError as error:
        raise NotPrepared(error.message) from None
    except OSError as error:
        raise NotPrepared(f"{error.filename or storage.data_dir}: {error.strerror}") from None


class DataPreparation:
    """The preparation of one trial's data: they are made once, and restored before each trial."""

    def __init__(self, run: TrialRun, data: TrialData, storage: Storage) -> None:
        self._run, self._data, self._storage = run, data, storage
        self._session, self._request = run.session, run.request
        workload = program_path(run.request, data.prepare[0]) if data.prepare else ""
        # A workload of pagecage's own, or any other program.
        self._program = workload if Path(workload).is_file() else next(iter(data.prepare), "")

    def run(self) -> Path:
        """Make the data if they are missing, restore them, and return their directory."""
        data, (base, work) = self._data, self.folders()
        original = ORIGINAL if data.writes else DATA
        saved = _read_saved(base, original) or self._make_saved(base, original)
        os.utime(base)
        self._run.keep(
            "data",
            directory=str(work / DATA),
            **({"key": base.name} if data.prepare else {}),
            entries=len(saved.entries),
            size_bytes=saved.size_bytes,
            manifest_sha256=saved.sha256,
        )
        if data.writes or work != base:
            self._restore(saved, work)
        elif changed := _changed_path(saved):
            raise NotPrepared(
                f"{base / DATA} was written to: {changed}; set writes = true under [data], or"
                f" remove {base} to have it made again"
            )
        return work / DATA

    def folders(self) -> tuple[Path, Path]:
        """Return the saved tree's directory, and the trial's, which is apart on a made disk."""
        if self._data.copied_to is not None:
            base = Path(self._data.copied_to)
            return base, base
        name = Path(PREPARED_FOLDER, self._key())
        return self._run.data_dir / name, self._storage.data_dir / name

    def _key(self) -> str:
        """Return the key: over the command, its programs, its datasets and the seed."""
        data, datasets = self._data, self._run.trial.datasets
        parts = {
            "prepare": data.prepare,
            "programs": list(self._identities()),
            "datasets": [one.file_name for one in datasets] if data.reads_datasets else [],
            "seed": data.seed,
            "writes": data.writes,
        }
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:_KEY_CHARACTERS]

    def _identities(self) -> Iterator[tuple[str, str]]:
        """Yield the programs that make the data, and their files' hashes."""
        data, folder = self._data, self._request.programs_folder
        for name, text in sorted(self._request.own_programs.items()):
            if any(f"{{programs}}/{name}" in word for word in (*data.prepare, *data.made_by)):
                yield name, hashlib.sha256(text.encode()).hexdigest()
        for word in (self._program, *data.made_by):
            for path in _find_programs(fill(word, {"programs": folder})):
                with path.open("rb") as file:
                    yield Path(word).name, hashlib.file_digest(file, "sha256").hexdigest()

    def _make_saved(self, base: Path, original: str) -> SavedTree:
        """Run the program where the data will be; the manifest, written last, completes them."""
        run, data = self._run, self._data
        if data.copied_to is not None:
            return save(base, original)
        wanted = run.trial.datasets if data.reads_datasets else ()
        datasets = [run.make_dataset(one, self._storage.data_dir) for one in wanted]
        shutil.rmtree(base, ignore_errors=True)
        (base / DATA).mkdir(parents=True)
        for path in (base.parent, base, base / DATA):
            path.chmod(0o755)  # the program may go on as another user
        try:
            self._make_room(base)
            argv = self.make(base / DATA, datasets)
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

    def _make_room(self, base: Path) -> None:
        """Remove data of other keys, the least recently used first. Raises HostError."""
        need_bytes = self._data.disk_bytes

        def has_room() -> bool:
            try:
                require_room(base, need_bytes)
            except HostError:
                return False
            return True

        def tell(other: Path) -> None:
            text = f"removing prepared data that take space: {other}"
            self._session.stream.event("notice", text=text)

        make_room((path for path in base.parent.iterdir() if path != base), has_room, tell)
        require_room(base, need_bytes, "a directory")

    def make(self, target: Path, datasets: Sequence[Path]) -> list[str]:
        """Run the program that fills the empty directory `target`; return its command.

        Raises NotPrepared with the last line of its output if it fails, takes too long, or leaves
        processes behind, which could go on writing.
        """
        data, values = self._data, command_places(self._request, target)
        values |= {"seed": data.seed, "file": datasets[0] if datasets else None}
        values["data_dir"] = target.parent
        argv = fill_all([self._program, *data.prepare[1:]], values, datasets)
        status, has_left, last_line = self._run_program(argv, target)
        name, ending = Path(argv[0]).name, f": {last_line}" if last_line else ""
        if status is None:
            limit = format_seconds(data.timeout_seconds)
            raise NotPrepared(f"{name} had not made the data after {limit}{ending}")
        if status != 0:
            how = describe_status(status)
            raise NotPrepared(f"{name}, which makes the data, ended {how}{ending}")
        if has_left:
            how = f"while processes that it started lived on{ending}"
            raise NotPrepared(f"{name}, which makes the data, ended {how}")
        return argv

    def _run_program(
        self, argv: Sequence[str], target: Path
    ) -> tuple[int | None, bool, str | None]:
        """Run the program, end all that it started; return its status, leftovers, last line."""
        mark, tail = f"{self._request.spool}:prepare", OutputTail()
        children, interruption = self._session.children, self._session.interruption
        process: Process[bytes] | None = None
        try:
            with interruption.held():
                process = children.start(
                    argv, stdout=PIPE, stderr=STDOUT, env={MARKER: mark}, cwd=target
                )
            reader = threading.Thread(target=_read, args=(process.stdout, tail), daemon=True)
            reader.start()
            status = self.wait(process, Path(argv[0]).name)
            has_left = leaves_marked(mark, _CHILDREN_SECONDS)
        finally:
            with interruption.held():
                if process is not None:
                    children.interrupt(process)
                kill_marked(mark)
        reader.join(timeout=_CHILDREN_SECONDS)
        return status, has_left, tail.last_line()

    def wait(self, process: Process[bytes], name: str) -> int | None:
        """Return the exit status, and tell the time at intervals; None if the time is over."""
        began, timeout_seconds = time.monotonic(), self._data.timeout_seconds
        while (spent := time.monotonic() - began) < timeout_seconds:
            since = f", since {format_seconds(spent)}" if spent >= 1 else ""
            self._run.tell(f"{name} makes data{since}")
            with suppress(TimeoutExpired):
                return process.wait(min(_TOLD_EVERY_SECONDS, timeout_seconds - spent))
        return None

    def _restore(self, saved: SavedTree, work: Path) -> None:
        session, base, machine = self._session, saved.original.parent, self._request.machine
        work.mkdir(mode=0o755, parents=True, exist_ok=True)
        size = format_bytes(saved.size_bytes)
        if work not in session.restored:
            self._run.tell(f"restoring {size} of data in {work / DATA}")
        # The machine state: the boot, and the restore of a guest's saved state.
        boot_id = session.facts["boot_id"]
        done = restore(saved, work, f"{boot_id} {machine['state_id']} {machine['restore_seq']}")
        self._run.keep("data", restored=vars(done))
        if base not in session.restored:
            session.restored.add(base)
            text = f"{size} of data are restored before each trial, by {done.method}; the first"
            text += f" time took {format_seconds(done.seconds)}"
            session.stream.event("notice", text=text)


def _find_programs(word: str) -> list[Path]:
    if word.startswith("/") and "*" in word:
        found = sorted(Path("/").glob(word[1:]))
    else:
        found = [Path(path) for path in [shutil.which(word)] if path]
    if not found:
        reason = f"there is no program {word!r}, which makes the data"
        raise RequirementMissed.of(Requirement.WORKLOAD, reason, "install it on the host")
    return found


def _read(output: IO[bytes] | None, tail: OutputTail) -> None:
    with suppress(OSError, ValueError):
        while output and (piece := os.read(output.fileno(), _READ_BYTES)):
            tail.add(piece)
