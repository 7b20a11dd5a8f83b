"""QEMU: its acceleration, its machine, its command line and its monitor."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import platform
import re
import shutil
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from qemu.qmp import ExecuteError, QMPClient, QMPError

from pagecage.errors import HostDied, HostError
from pagecage.hosts.agent_package import ARCHITECTURES, Architecture, architecture
from pagecage.hosts.host import Progress, ResourceNeeds
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.image import GuestImage
from pagecage.linux.procfs import cpu_model
from pagecage.process import (
    Process,
    ProcessId,
    dying_with_parent,
    end,
    identify,
    is_alive,
    last_line,
    replay,
    run,
    spawn,
    wait_until,
)
from pagecage.units import GIB, MIB
from pagecage.whole_files import text_sha256

T = TypeVar("T")
_ANSWER_SECONDS = 30.0
# The library logs errors that are also raised; without a handler Python would print them.
logging.getLogger("qemu.qmp").addHandler(logging.NullHandler())


class QmpClient:
    """A connection to QEMU. Methods raise HostDied if it has ended, HostError if it refuses."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._loop = asyncio.new_event_loop()
        self._client = QMPClient("pagecage")

    def connect(self, timeout_seconds: float) -> bool:
        """Try to connect until the time limit; return whether it succeeded."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            if self._socket.exists():
                try:
                    self._wait(self._client.connect(str(self._socket)))
                    return True
                except (QMPError, OSError):
                    self._wait(self._disconnect())
                    self._client = QMPClient("pagecage")
            time.sleep(0.01)
        return False

    def execute(self, command: str, **arguments: Any) -> Any:
        """Return the result of a QMP command; underscores in argument names become dashes."""
        dashed = {name.replace("_", "-"): value for name, value in arguments.items()}
        return self.execute_verbatim(command, dashed)

    def execute_verbatim(self, command: str, arguments: Mapping[str, object]) -> Any:
        """Return the result of a QMP command whose argument names contain underscores."""
        try:
            answer = self._client.execute(command, dict(arguments) or None)
            return self._wait(asyncio.wait_for(answer, _ANSWER_SECONDS))
        except ExecuteError as error:
            raise HostError(f"QEMU rejected {command}: {error}") from None
        except (TimeoutError, QMPError, OSError, asyncio.IncompleteReadError) as error:
            reason = f"QEMU no longer answers ({type(error).__name__})"
            raise HostDied(reason, "run it again") from None

    def status(self) -> str:
        """Return QEMU's run state (running, paused, inmigrate, postmigrate...)."""
        return str(self.execute("query-status")["status"])

    def forwarded_port(self) -> int:
        table = self.execute("human-monitor-command", command_line="info usernet")
        return parse_forwarded_port(table)

    def close(self) -> None:
        if not self._loop.is_closed():
            self._wait(self._disconnect())
            self._loop.close()

    async def _disconnect(self) -> None:
        # QEMU may have closed the connection first.
        with contextlib.suppress(QMPError, OSError, EOFError):
            await self._client.disconnect()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(coroutine)


def parse_forwarded_port(table: str) -> int:
    found = re.search(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s", table)
    if not found:
        raise HostError("QEMU forwards no port to the guest", "pagecage host rebuild vm")
    return int(found.group(1))


CPUS = 2
LEAST_MEMORY_BYTES = 2 * GIB
PORTS = ("data-port", "disk-port-1", "disk-port-2", "disk-port-3")
"""PCIe root ports into which data disks are plugged while the guest runs, one each."""
QMP_SOCKET, GUEST_DAEMON_SOCKET, SSH_SOCKET = "qmp", "guest-daemon", "ssh"


@dataclass(frozen=True)
class Acceleration:
    """Execution of the guest's instructions: accel `kvm` or `tcg`, CPU model, QEMU's version."""

    accel: str
    cpu: str
    qemu_version: str

    @property
    def emulated(self) -> bool:
        """True if instructions are translated, so that CPU time is not comparable with hardware."""
        return self.accel == "tcg"


@dataclass(frozen=True)
class GuestMachine:
    """A machine with its memory, processors and acceleration."""

    arch: str
    memory_bytes: int
    cpus: int
    acceleration: Acceleration

    @property
    def machine_type(self) -> str:
        return ARCHITECTURES[self.arch].board.partition(",")[0]

    def key_parts(self) -> tuple[str, ...]:
        """Return everything about the machine that a saved state depends on."""
        any_path, host_cpu = Path("nowhere"), ""
        argv = qemu_argv(self, GuestImage(any_path), any_path, any_path, any_path)
        if not self.acceleration.emulated:  # a state of `-cpu host` fits only the same processor
            host_cpu = cpu_model(Path("/proc/cpuinfo").read_text()) or platform.processor()
        return (*argv, self.acceleration.qemu_version, host_cpu)


def machine_for(need: ResourceNeeds, acceleration: Acceleration, cpus: int = CPUS) -> GuestMachine:
    """Return the machine for a plan, with at least 2 GiB of memory in steps of 256 MiB."""
    step = 256 * MIB
    memory_bytes = max(LEAST_MEMORY_BYTES, need.memory_bytes)
    return GuestMachine(architecture().machine, -(-memory_bytes // step) * step, cpus, acceleration)


def qemu_argv(
    machine: GuestMachine, image: GuestImage, disk: Path, sockets: Path, console: Path
) -> list[str]:
    """Return the command that runs this machine, stopped, on `disk` (qcow2).

    The guest has no network access (`restrict=on`). QEMU chooses the loopback port of its ssh (port
    0; `info usernet` shows it), so that no other process can take it before.
    """
    known, acceleration = ARCHITECTURES[machine.arch], machine.acceleration
    accel = "tcg,thread=multi" if acceleration.emulated else acceleration.accel
    kernel_line = (
        f"root=/dev/vda rw console={known.console} net.ifnames=0 panic=-1 quiet"
        f" systemd.show_status=false {known.boot_option}"
    ).rstrip()
    ports = [f"pcie-root-port,id={p},chassis={n},slot={n}" for n, p in enumerate(PORTS, start=1)]
    devices = ("virtio-rng-pci", *known.devices, *ports)
    return [
        *(known.qemu, *_BARE, "-S", "-machine", known.board),
        *("-accel", accel, "-cpu", acceleration.cpu, "-smp", str(machine.cpus)),
        *("-m", f"{machine.memory_bytes // MIB}M"),
        *("-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", kernel_line),
        *(word for device in devices for word in ("-device", device)),
        *("-drive", f"file={escape(disk)},format=qcow2,if=virtio,cache=writeback,discard=unmap"),
        *("-netdev", "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:0-:22"),
        *("-device", "virtio-net-pci,netdev=net,romfile=", "-chardev"),
        f"socket,id=guest-daemon,path={escape(sockets / GUEST_DAEMON_SOCKET)},server=on,wait=off",
        *("-device", "virtio-serial-pci"),
        *("-device", "virtserialport,chardev=guest-daemon,name=pagecage"),
        *("-serial", f"file:{escape(console)}"),
        *("-qmp", f"unix:{escape(sockets / QMP_SOCKET)},server=on,wait=off"),
    ]


_BARE = ("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")


def escape(path: Path) -> str:
    """Return a path for a comma-separated option of QEMU, with commas doubled (qemu(1))."""
    return str(path).replace(",", ",,")


TRIAL_SECONDS = 4.0
"""TCG prints the kernel's first line within 1 s. KVM that takes longer than this does not work."""
KVM_DEVICE = Path("/dev/kvm")


def find_acceleration(cache: GuestCache, image: GuestImage, progress: Progress) -> Acceleration:
    """Return KVM if a trial boot works, else TCG; kept until the host reboots."""
    known = known_acceleration(cache)
    if known is None:
        progress("testing whether KVM works")
        result = {**_circumstances(), "kvm_works": kvm_works(image, cache.scratch)}
        cache.acceleration_file.write_text(json.dumps(result))
        known = _acceleration(result)
    return known


def known_acceleration(cache: GuestCache) -> Acceleration | None:
    """Return TCG without KVM, or the result of a trial boot that still holds; else None."""
    circumstances = _circumstances()
    if not circumstances["kvm_opens"]:
        return _acceleration({**circumstances, "kvm_works": False})
    try:
        stored = json.loads(cache.acceleration_file.read_text())
        is_valid = all(stored.get(name) == value for name, value in circumstances.items())
    except (FileNotFoundError, ValueError, AttributeError):
        return None
    return _acceleration(stored) if is_valid else None


def _circumstances() -> dict[str, object]:
    guest = architecture()
    return {
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "qemu_version": qemu_version(guest.qemu),
        "kvm_opens": guest.is_native and os.access(KVM_DEVICE, os.R_OK | os.W_OK),
    }


def _acceleration(result: dict[str, object]) -> Acceleration:
    accel, cpu = ("kvm", "host") if result["kvm_works"] else ("tcg", "max")
    return Acceleration(accel, cpu, str(result["qemu_version"]))


def qemu_version(program: str) -> str:
    """Return QEMU's version ("7.2.22"). Raises PagecageError if it is not installed."""
    output = run([program, "--version"]).stdout
    found = re.search(r"version (\d+(?:\.\d+)+)", output)
    if not found:
        raise HostError(f"{program} --version prints no version", "make setup")
    return found.group(1)


def kvm_works(image: GuestImage, scratch: Path) -> bool:
    console, errors = scratch / "kvm-console.log", scratch / "kvm-qemu.log"
    console.unlink(missing_ok=True)
    with errors.open("wb") as output:
        qemu = spawn(trial_argv(image, console, architecture()), stderr=output)
    try:
        deadline = time.monotonic() + TRIAL_SECONDS
        while True:
            has_ended = qemu.poll() is not None or has_kvm_error(errors.read_text())
            if console.exists() and "Linux version" in console.read_text(errors="replace"):
                return True
            if has_ended or time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
    finally:
        qemu.kill()
        qemu.wait()


def trial_argv(image: GuestImage, console: Path, guest: Architecture) -> list[str]:
    """Return a machine with a kernel alone, which panics without a root disk and ends QEMU."""
    return [
        *("setpriv", "--pdeathsig", "KILL", guest.qemu, *_BARE, "-accel", "kvm", "-cpu", "host"),
        *("-machine", guest.board, "-m", "256M", "-serial", f"file:{escape(console)}"),
        *("-kernel", str(image.kernel), "-append"),
        f"console={guest.console} {guest.early_console} panic=-1 reboot=t",
    ]


def has_kvm_error(stderr: str) -> bool:
    return "KVM internal error" in stderr or "failed to set MSR" in stderr


_SOCKET_SECONDS = 10.0


def sockets_dir(cache: GuestCache) -> Path:
    """Return the directory for the sockets of the guest of this cache.

    Its name is short, because a unix socket's path has at most 107 characters (unix(7)), and
    constant, so that the next process finds the sockets of a killed one.
    """
    name = text_sha256(str(cache.root))[:8]
    return Path("/tmp") / f"pagecage-vm-{os.getuid()}-{name}"


def make_sockets_dir(cache: GuestCache) -> Path:
    """Create the directory for sockets anew. Raises HostError if another user owns it."""
    path = sockets_dir(cache)
    shutil.rmtree(path, ignore_errors=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        raise HostError(f"{path} belongs to another user", f"sudo rm -r {path}") from None
    return path


class Qemu:
    """A QEMU process and a client of its control socket."""

    def __init__(
        self, process_id: ProcessId, sockets: Path, log: Path, child: Process[bytes] | None = None
    ) -> None:
        self.process_id, self.sockets = process_id, sockets
        self.monitor = QmpClient(sockets / QMP_SOCKET)
        self._log, self._child = log, child

    @classmethod
    def start(
        cls, argv: Sequence[str], sockets: Path, scratch: Path, *, dies_with_parent: bool
    ) -> Qemu:
        """Start QEMU, stopped, and connect to it; it may end with this thread. Raises HostError."""
        log = scratch / "qemu.log"
        started = dying_with_parent(argv) if dies_with_parent else argv
        env = {"TMPDIR": str(scratch)}
        with log.open("wb") as output:
            child = spawn(started, stdout=output, stderr=output, env=env, new_session=True)
        if (process_id := identify(child.pid)) is None:
            reason = f"QEMU ended at once: {_last_line(log)}"
            raise HostError(reason, f"run it by hand: {replay(argv)}")
        qemu = cls(process_id, sockets, log, child)
        qemu.connect()
        return qemu

    def connect(self) -> None:
        """Connect to the control socket. Raises HostError if QEMU does not open it or has ended."""
        deadline = time.monotonic() + _SOCKET_SECONDS
        while not self.monitor.connect(0.5):
            if not self.alive() or time.monotonic() > deadline:
                message = _last_line(self._log)
                self.end()
                raise HostError(f"QEMU did not start: {message}", "pagecage host rebuild vm")

    @property
    def guest_daemon(self) -> Path:
        return self.sockets / GUEST_DAEMON_SOCKET

    def alive(self) -> bool:
        return is_alive(self.process_id)

    def check(self) -> None:
        """Raise HostDied if the process has ended."""
        if not self.alive():
            reason = f"the guest ended: {_last_line(self._log)}"
            raise HostDied(reason, "run it again; finished trials are kept")

    def quit(self) -> None:
        """Ask QEMU to end, so that it writes out its disks; kill it after a time limit."""
        with contextlib.suppress(HostError):  # it is ending or has ended; end() makes sure
            self.monitor.execute("quit")
        wait_until(lambda: not self.alive(), _SOCKET_SECONDS)
        self.end()

    def end(self) -> None:
        """Kill and reap the process and remove its sockets. Safe at any time."""
        self.monitor.close()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        else:
            end(self.process_id)
        shutil.rmtree(self.sockets, ignore_errors=True)


def _last_line(log: Path) -> str:
    return last_line(log.read_text(errors="replace") if log.exists() else "")


def console_tail(console: Path, lines: int = 12) -> str:
    """Return the last lines of the guest's serial console, for a guest that does not boot."""
    text = console.read_text(errors="replace") if console.exists() else ""
    tail = os.linesep.join(line.rstrip() for line in text.splitlines()[-lines:])
    return tail or "(the console is empty)"
