"""Detection of working KVM.

Even if /dev/kvm opens, only a boot shows that it runs a stock kernel.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

from pagecage.errors import HostError
from pagecage.hosts.architecture import Architecture, architecture
from pagecage.hosts.host import Progress
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.image.guest_image import GuestImage
from pagecage.hosts.vm.machine import Acceleration, escape
from pagecage.process import run, spawn

TRIAL_SECONDS = 4.0
"""TCG prints the kernel's first line within 1 s. KVM that takes longer than this does not work."""
KVM_DEVICE = Path("/dev/kvm")


def find_acceleration(cache: GuestCache, image: GuestImage, progress: Progress) -> Acceleration:
    """Return KVM if a trial boot of the guest's kernel works, else TCG.

    The result is kept until the host reboots. Raises PagecageError if QEMU is not installed.
    """
    known = known_acceleration(cache)
    if known is None:
        progress("testing whether KVM works")
        result = {**_circumstances(), "kvm_works": kvm_works(image, cache.scratch)}
        cache.acceleration_file.write_text(json.dumps(result))
        known = _acceleration(result)
    return known


def known_acceleration(cache: GuestCache) -> Acceleration | None:
    """Return the acceleration if no trial boot is needed, else None.

    It is TCG if KVM cannot be opened, else the result of the last trial boot under the same
    circumstances.
    """
    circumstances = _circumstances()
    if not circumstances["kvm_opens"]:
        return _acceleration({**circumstances, "kvm_works": False})
    stored = _read(cache.acceleration_file)
    is_valid = all(stored.get(name) == value for name, value in circumstances.items())
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
    """Return whether the guest's kernel prints its first line under KVM."""
    console, errors = scratch / "kvm-console.log", scratch / "kvm-qemu.log"
    console.unlink(missing_ok=True)
    with errors.open("wb") as output:
        qemu = spawn(trial_argv(image, console, architecture()), stderr=output)
    try:
        deadline = time.monotonic() + TRIAL_SECONDS
        while (
            time.monotonic() < deadline
            and qemu.poll() is None
            and not has_kvm_error(errors.read_text())
        ):
            if console.exists() and "Linux version" in console.read_text(errors="replace"):
                return True
            time.sleep(0.02)
        return console.exists() and "Linux version" in console.read_text(errors="replace")
    finally:
        qemu.kill()
        qemu.wait()


def trial_argv(image: GuestImage, console: Path, guest: Architecture) -> list[str]:
    """Return the command for a machine with a kernel and nothing else.

    The kernel panics because it has no root disk, and QEMU ends.
    """
    return [
        "setpriv",
        "--pdeathsig",
        "KILL",
        guest.qemu,
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-accel",
        "kvm",
        "-cpu",
        "host",
        "-machine",
        guest.board,
        "-m",
        "256M",
        "-serial",
        f"file:{escape(console)}",
        "-kernel",
        str(image.kernel),
        "-append",
        f"console={guest.console} {guest.early_console} panic=-1 reboot=t",
    ]


def has_kvm_error(stderr: str) -> bool:
    """Return whether QEMU has reported that KVM does not work."""
    return "KVM internal error" in stderr or "failed to set MSR" in stderr


def _read(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
