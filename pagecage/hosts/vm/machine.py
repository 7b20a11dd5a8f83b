"""The virtual machine as QEMU's arguments, which decide whether a saved state fits."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from pagecage.agent.system.procfs import cpu_model
from pagecage.hosts.architecture import ARCHITECTURES, architecture
from pagecage.hosts.host import ResourceNeeds
from pagecage.hosts.vm.image.guest_image import GuestImage
from pagecage.units import GIB, MIB

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
        """QEMU's machine type."""
        return ARCHITECTURES[self.arch].board.partition(",")[0]

    def key_parts(self) -> tuple[str, ...]:
        """Return everything about the machine that a saved state depends on."""
        any_path = Path("nowhere")
        argv = qemu_argv(self, GuestImage(any_path), any_path, any_path, any_path)
        host_cpu = "" if self.acceleration.emulated else _host_cpu()
        return (*argv, self.acceleration.qemu_version, host_cpu)


def machine_for(need: ResourceNeeds, acceleration: Acceleration, cpus: int = CPUS) -> GuestMachine:
    """Return the machine for a plan, with at least 2 GiB of memory in steps of 256 MiB."""
    step = 256 * MIB
    memory_bytes = max(LEAST_MEMORY_BYTES, need.memory_bytes)
    return GuestMachine(architecture().machine, -(-memory_bytes // step) * step, cpus, acceleration)


def _devices(arch: str) -> list[str]:
    return [
        "-device",
        "virtio-rng-pci",
        *(word for device in ARCHITECTURES[arch].devices for word in ("-device", device)),
        *(
            word
            for number, port in enumerate(PORTS, start=1)
            for word in ("-device", f"pcie-root-port,id={port},chassis={number},slot={number}")
        ),
    ]


def _accel_arguments(acceleration: Acceleration) -> list[str]:
    accel = "tcg,thread=multi" if acceleration.emulated else acceleration.accel
    return ["-accel", accel, "-cpu", acceleration.cpu]


def _boot_arguments(image: GuestImage, arch: str) -> list[str]:
    known = ARCHITECTURES[arch]
    line = (
        f"root=/dev/vda rw console={known.console} net.ifnames=0 panic=-1 quiet"
        f" systemd.show_status=false {known.boot_option}"
    ).rstrip()
    return ["-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", line]


_NETWORK = (
    "-netdev",
    "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:0-:22",
    "-device",
    "virtio-net-pci,netdev=net,romfile=",
)


def qemu_argv(
    machine: GuestMachine, image: GuestImage, disk: Path, sockets: Path, console: Path
) -> list[str]:
    """Return the command that runs this machine, stopped, on `disk` (qcow2).

    Its sockets are in `sockets`. The guest has no network access (`restrict=on`). Its ssh is
    forwarded from a loopback port that QEMU chooses (port 0; `info usernet` shows it), so that no
    other process can take the port before.
    """
    return [
        ARCHITECTURES[machine.arch].qemu,
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-S",
        "-machine",
        ARCHITECTURES[machine.arch].board,
        *_accel_arguments(machine.acceleration),
        "-smp",
        str(machine.cpus),
        "-m",
        f"{machine.memory_bytes // MIB}M",
        *_boot_arguments(image, machine.arch),
        *_devices(machine.arch),
        "-drive",
        f"file={escape(disk)},format=qcow2,if=virtio,cache=writeback,discard=unmap",
        *_NETWORK,
        "-chardev",
        f"socket,id=guest-daemon,path={escape(sockets / GUEST_DAEMON_SOCKET)},server=on,wait=off",
        "-device",
        "virtio-serial-pci",
        "-device",
        "virtserialport,chardev=guest-daemon,name=pagecage",
        "-serial",
        f"file:{escape(console)}",
        "-qmp",
        f"unix:{escape(sockets / QMP_SOCKET)},server=on,wait=off",
    ]


def escape(path: Path) -> str:
    """Return a path for a comma-separated option of QEMU, with commas doubled (qemu(1))."""
    return str(path).replace(",", ",,")


def _host_cpu() -> str:
    """Return the processor's name. A state saved with `-cpu host` fits only the same processor."""
    return cpu_model(Path("/proc/cpuinfo").read_text()) or platform.processor()
