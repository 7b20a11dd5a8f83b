"""This machine as a host, measured as root or through the user's own systemd."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from pagecage.agent.facts import is_emulated, read_facts, read_packages
from pagecage.agent.host_session import user_of_machine
from pagecage.errors import HostError, PagecageError
from pagecage.hosts.agent_package import AgentPackage, agent_argv, push_agent_package
from pagecage.hosts.host import MachineState, Progress, ResourceNeeds
from pagecage.linux import procfs
from pagecage.linux.systemd import runtime_dir
from pagecage.model.cage import DATA_DISK
from pagecage.model.disk_speed import ASSUMED, WINDOW_BYTES, DiskSpeed
from pagecage.model.record_sections import Row
from pagecage.model.requirements import MissedRequirement, check_disk, check_limits, default_driver
from pagecage.model.trial import missing_packages
from pagecage.units import BLOCK_BYTES, MIB, format_bytes
from pagecage.whole_files import write_whole

_SPARE_BYTES = 512 * MIB  # the file system's own, and more than a dataset must leave free


class LocalHost:
    """A host that runs the agent as a child process."""

    name = "local"

    def __init__(
        self, data_dir: Path | None = None, disks: Mapping[str, str] | None = None
    ) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        self.data_dir = str(data_dir or cache / "pagecage/data")
        self.disks: Mapping[str, str] = disks or {}
        self.own_disk: Mapping[str, str | int] | None = None
        self.spool_dir = _spool_dir(os.getuid(), runtime_dir())

    @property
    def user(self) -> bool:
        return os.getuid() != 0

    def missed_for_limits(self) -> list[MissedRequirement]:
        return check_limits(self.facts())

    def default_driver(self) -> str | None:
        """Return the driver of trials that name none; None for systemd's."""
        return default_driver(self.facts())

    def facts(self) -> Row:
        return read_facts(Path(self.data_dir), self.user, self.disks)

    def is_emulated(self, progress: Progress) -> bool:
        return is_emulated(self.facts())

    def disk_speed(self) -> DiskSpeed:
        """Return the speed of the data directory's disk; an assumed one while a run is going on."""
        facts = self.facts()
        try:
            require_idle(Path(self.spool_dir))
        except HostError:
            return ASSUMED
        machine = f"{facts['disk'].get('maj_min')} {facts['boot_id']}"
        return disk_speed(Path(self.data_dir), machine)

    def can_make_disk(self) -> bool:
        """Return whether a disk of pagecage's own can be made: by root, with the loop driver."""
        return not self.user and Path("/dev/loop-control").exists()

    def make_disk(self, data_bytes: int) -> str:
        """Let the agent make a disk with room for this much data; return its file."""
        size_bytes = -(-(data_bytes * 21 // 20 + _SPARE_BYTES) // MIB) * MIB
        self.own_disk = {
            "file": f"{self.data_dir}/disk.img",
            "size_bytes": size_bytes,
            "data_bytes": data_bytes,
        }
        return str(self.own_disk["file"])

    def prepare(self, need: ResourceNeeds, progress: Progress) -> None:
        """Raise HostError if this machine is unfit or in use."""
        require_idle(Path(self.spool_dir))
        facts = self.facts()
        if missed := check_disk(facts):
            raise HostError(f"this machine cannot be the host: {missed[0].reason}", missed[0].hint)
        packages = need.distribution_packages
        if lacking := missing_packages({"packages": read_packages(packages)}, packages):
            raise HostError(f"{lacking[0]} on this machine", lacking[1])
        available_bytes = procfs.meminfo_bytes("MemAvailable")
        if available_bytes is not None and available_bytes < need.resident_bytes:
            raise HostError(
                f"{format_bytes(need.resident_bytes)} of data must stay in memory, and this machine"
                f" has {format_bytes(available_bytes)} available",
                "choose a smaller --dataset",
            )

    def require_free_space(self, data_bytes: int) -> None:
        """Raise PagecageError without room for data of this size; existing data count as room."""
        folder = Path(self.data_dir)
        held = (*folder.glob("*.bin"), *folder.glob("*.raw"), *folder.glob("prepared/*/*/**/*"))
        held_bytes = sum(path.lstat().st_size for path in held if path.is_file())
        free_bytes = self.facts()["free_bytes"]
        if free_bytes + held_bytes < data_bytes:
            raise PagecageError(
                f"{format_bytes(data_bytes)} do not fit in {self.data_dir}"
                f" ({format_bytes(free_bytes)} free)",
                "choose a smaller --dataset or another --data-dir",
            )

    def start(self) -> MachineState:
        return MachineState(None, None, self.is_emulated(lambda _: None), {})

    restart = start

    def install(self, package: AgentPackage) -> None:
        """Copy the agent, the workloads and the servers of simulated volumes to the spool."""
        push_agent_package(self, package)
        self.push(package.volume_files, f"{self.spool_dir}/bin")

    def agent_command(self) -> list[str]:
        return self.command(agent_argv(self.spool_dir))

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return `argv` with this interpreter, since the first python3 on PATH may be too old.

        Without a login session, `systemctl --user` is told where its systemd is.
        """
        has_session = not self.user or os.environ.get("XDG_RUNTIME_DIR")
        settings = [] if has_session else ["env", f"XDG_RUNTIME_DIR={runtime_dir()}"]
        program = [sys.executable, "-I"] if argv[0] == "python3" else [argv[0]]
        return [*settings, *program, *argv[1:]]

    interactive = command

    def push(self, sources: Sequence[Path], directory: str) -> None:
        """Copy files to the spool, which is in memory."""
        # Its files are executed, and its parent may be writable by others.
        path = Path(self.spool_dir)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        stat = path.lstat()
        if stat.st_uid != os.getuid() or stat.st_mode & 0o022 or path.is_symlink():
            reason = f"{path} belongs to another user, or others can write to it"
            raise HostError(reason, f"remove {path}")
        if stat.st_uid == 0:
            path.chmod(0o711)  # a server that drops root's rights reaches its data below
        Path(directory).mkdir(parents=True, exist_ok=True)
        for source in sources:
            part = Path(directory, f".{source.name}.part")  # a running program stays as it is
            shutil.copy2(source, part)
            part.replace(Path(directory, source.name))

    def outer_sample(self) -> Row | None:
        return None

    def throttle(self, limits: Mapping[str, int]) -> dict[str, int]:
        raise HostError("qemu-throttle works only in a guest started by pagecage", "use HOST=vm")

    def command_volume(self, command: Row, disk: str = DATA_DISK) -> Row:
        raise HostError("this machine is not a guest started by pagecage", "use HOST=vm")

    def stop(self) -> None:
        """Do nothing."""


def require_idle(spool: Path) -> None:
    """Raise HostError if another agent, of any user, has locked this machine."""
    try:
        with (spool / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise HostError("another run is using this machine", "wait for it") from None
    except OSError:  # there is no spool yet
        pass
    if user := user_of_machine():
        raise HostError(f"another run is using this machine ({user})", "wait for it")


def _spool_dir(uid: int, runtime: Path, shared: Path = Path("/dev/shm")) -> str:
    """Return the spool, whose files are executed. It is in memory if the account has a place there.

    Without a login, as in a container, there is no runtime directory; and a container's /dev/shm is
    noexec.
    """
    place = runtime if uid else shared
    can_execute = place.is_dir() and not os.statvfs(place).f_flag & os.ST_NOEXEC
    return f"{place}/pagecage" if can_execute else f"{tempfile.gettempdir()}/pagecage-{uid}"


_PROBED_BYTES = 128 * MIB
_CHUNK_BYTES = MIB
_MOST_SECONDS = 1.0  # per rate
_MOST_READS = 200
_STRIDE = 7919
_FEWEST_BYTES = 16 * MIB


def disk_speed(folder: Path, machine: str) -> DiskSpeed:
    """Return the speed of the disk under a directory; ASSUMED if it takes no direct writes.

    It is measured once per `machine`, a text that names disk and boot, and kept in the directory.
    """
    kept = folder / "disk-speed.json"
    with suppress(OSError, ValueError, TypeError):
        found = json.loads(kept.read_text())
        if found.pop("machine") == machine:
            return DiskSpeed(**found)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        speed = _probe(folder)
    except OSError:
        return ASSUMED
    with suppress(OSError):
        write_whole(kept, json.dumps({"machine": machine, **asdict(speed)}))
    return speed


def _probe(folder: Path) -> DiskSpeed:
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".probe-") as file:
        direct = os.open(file.name, os.O_WRONLY | os.O_DIRECT)
        try:
            with mmap.mmap(-1, _CHUNK_BYTES) as buffer:
                buffer.write(os.urandom(_CHUNK_BYTES))
                write_rate = _bytes_per_second(lambda offset: os.pwritev(direct, [buffer], offset))
            os.fsync(direct)
            descriptor = file.fileno()
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            return DiskSpeed(
                _bytes_per_second(lambda offset: len(os.pread(descriptor, _CHUNK_BYTES, offset))),
                write_rate,
                _read_seconds(file.fileno(), BLOCK_BYTES),
                _read_seconds(file.fileno(), WINDOW_BYTES),
            )
        finally:
            os.close(direct)


def _bytes_per_second(step: Callable[[int], int]) -> float:
    """Return the bytes per second of steps, each of which is given its offset."""
    done, begin = 0, time.perf_counter()
    while done < _PROBED_BYTES:
        if not (moved := step(done)):
            break
        done += moved
        if time.perf_counter() - begin > _MOST_SECONDS and done >= _FEWEST_BYTES:
            break
    return done / max(time.perf_counter() - begin, 1e-6)


def _read_seconds(descriptor: int, size_bytes: int) -> float:
    """Return the mean time of cold reads of this size through the page cache, out of order."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead besides
    places = os.fstat(descriptor).st_size // WINDOW_BYTES
    reads, begin = 0, time.perf_counter()
    while reads < min(places, _MOST_READS) and time.perf_counter() - begin < _MOST_SECONDS:
        # Multiples of a prime that does not divide the number of places visit each of them once.
        os.pread(descriptor, size_bytes, reads * _STRIDE % places * WINDOW_BYTES)
        reads += 1
    return (time.perf_counter() - begin) / max(reads, 1)
