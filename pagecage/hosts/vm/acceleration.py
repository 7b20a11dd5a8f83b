"""Whether KVM really works here. A /dev/kvm that opens may still not run a stock kernel; only booting one tells."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from pathlib import Path

from pagecage.errors import HostError
from pagecage.hosts.host import Progress
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.image import GuestImage
from pagecage.hosts.vm.machine import Acceleration, escape, qemu_program
from pagecage.process import run, spawn

TRIAL_SECONDS = 4.0
"""Emulation itself shows the kernel's first line within 1 s; KVM that has not by then does not work."""
KVM_DEVICE = Path("/dev/kvm")


def find_acceleration(cache: GuestCache, image: GuestImage, progress: Progress) -> Acceleration:
    """KVM where a trial boot of the guest's kernel showed that it works, else TCG. Remembered until the host reboots.

    Raises PagecageError when QEMU is not installed.
    """
    known = known_acceleration(cache)
    if known is None:
        progress("trying whether KVM works here")
        told = {**_circumstances(), "kvm_works": kvm_works(image, cache.scratch)}
        cache.acceleration_file.write_text(json.dumps(told))
        known = _acceleration(told)
    return known


def known_acceleration(cache: GuestCache) -> Acceleration | None:
    """What is known without a trial boot: the last one's outcome, or TCG where KVM cannot even be opened; else None."""
    asked = _circumstances()
    if not asked["kvm_opens"]:
        return _acceleration({**asked, "kvm_works": False})
    told = _read(cache.acceleration_file)
    return _acceleration(told) if all(told.get(name) == value for name, value in asked.items()) else None


def _circumstances() -> dict[str, object]:
    return {
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "qemu_version": qemu_version(platform.machine()),
        "kvm_opens": os.access(KVM_DEVICE, os.R_OK | os.W_OK),
    }


def _acceleration(told: dict[str, object]) -> Acceleration:
    accel, cpu = ("kvm", "host") if told["kvm_works"] else ("tcg", "max")
    return Acceleration(accel, cpu, str(told["qemu_version"]))


def qemu_version(arch: str) -> str:
    """QEMU's version as it tells it ("7.2.22"). Raises PagecageError when it is not installed."""
    told = run([qemu_program(arch), "--version"]).stdout
    found = re.search(r"version (\d+(?:\.\d+)+)", told)
    if not found:
        raise HostError(f"{qemu_program(arch)} tells no version", "make setup")
    return found.group(1)


def kvm_works(image: GuestImage, scratch: Path) -> bool:
    """Whether the guest's kernel prints its first line under KVM."""
    console, errors = scratch / "kvm-console.log", scratch / "kvm-qemu.log"
    console.unlink(missing_ok=True)
    with errors.open("wb") as output:
        qemu = spawn(trial_argv(image, console), stderr=output)
    try:
        deadline = time.monotonic() + TRIAL_SECONDS
        while time.monotonic() < deadline and qemu.poll() is None and not refused(errors.read_text()):
            if console.exists() and "Linux version" in console.read_text(errors="replace"):
                return True
            time.sleep(0.02)
        return console.exists() and "Linux version" in console.read_text(errors="replace")
    finally:
        qemu.kill()
        qemu.wait()


def trial_argv(image: GuestImage, console: Path) -> list[str]:
    """A machine with a kernel and nothing else; it panics for want of a root disk and QEMU ends by itself."""
    arch = platform.machine()
    board, tty = ("virt", "ttyAMA0") if arch == "aarch64" else ("q35", "ttyS0")
    early = "earlycon" if arch == "aarch64" else f"earlyprintk=serial,{tty}"
    return [
        "setpriv", "--pdeathsig", "KILL", qemu_program(arch), "-nodefaults", "-no-user-config", "-display", "none",
        "-no-reboot", "-accel", "kvm", "-cpu", "host", "-machine", board, "-m", "256M",
        "-serial", f"file:{escape(console)}", "-kernel", str(image.kernel),
        "-append", f"console={tty} {early} panic=-1 reboot=t",
    ]  # fmt: skip


def refused(stderr: str) -> bool:
    """Whether QEMU has said that this KVM will not do, so that there is no need to wait."""
    return "KVM internal error" in stderr or "failed to set MSR" in stderr


def _read(path: Path) -> dict[str, object]:
    try:
        told = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}
