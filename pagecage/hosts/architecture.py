"""The processor architecture of the hosts that trials run on.

It is this machine's, unless PAGECAGE_MACHINE names another (`uname -m`). Programs for another one
are cross-compiled, and a guest of another one is emulated.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

from pagecage.errors import HostError

VARIABLE = "PAGECAGE_MACHINE"


@dataclass(frozen=True)
class Architecture:
    """An architecture for which programs and guests are made.

    `machine` is the kernel's name, `debian` that of packages. `board` is QEMU's machine with its
    options, `console` the kernel's device of its serial port. `boot_option` goes to the guest's
    kernel; "" for none. `devices` are QEMU's that only this architecture has.
    """

    machine: str
    debian: str
    board: str
    console: str
    early_console: str
    boot_option: str = ""
    devices: tuple[str, ...] = ()

    @property
    def is_native(self) -> bool:
        """True if this machine runs programs of the architecture itself."""
        return self.machine == platform.machine()

    @property
    def qemu(self) -> str:
        """The QEMU that runs a guest of the architecture."""
        return f"qemu-system-{self.machine}"


_KNOWN = (
    Architecture(
        *("x86_64", "amd64", "q35", "ttyS0", "earlyprintk=serial,ttyS0"),
        devices=("vmgenid,guid=auto",),  # reseeds at a restore; the guest's daemon does so too
    ),
    # QEMU's default is GICv2, which KVM lacks on most servers (docs/system/arm/virt.rst).
    Architecture(
        *("aarch64", "arm64", "virt,gic-version=max", "ttyAMA0", "earlycon"),
        boot_option="systemd.getty_auto=no",  # the image masks the login of ttyS0 only
    ),
)
ARCHITECTURES = {known.machine: known for known in _KNOWN}


def target_machine() -> str:
    """Return the kernel's name of the hosts' architecture."""
    return os.environ.get(VARIABLE) or platform.machine()


def architecture(machine: str | None = None) -> Architecture:
    """Return an architecture, by default the hosts'.

    Raises HostError if nothing is made for it.
    """
    wanted = machine or target_machine()
    if wanted not in ARCHITECTURES:
        raise HostError(
            f"there is no guest for {wanted}", "run on x86_64 or aarch64, or use HOST=local"
        )
    return ARCHITECTURES[wanted]


def is_foreign_target() -> bool:
    """Return whether the hosts have another architecture than this machine."""
    return target_machine() != platform.machine()


def build_folder() -> str:
    """Return the name of the folder with the hosts' compiled programs.

    Raises HostError if nothing is made for their architecture.
    """
    return architecture().machine if is_foreign_target() else "host"


def require_native_target() -> None:
    """Raise HostError if the hosts have another architecture than this machine."""
    if is_foreign_target():
        raise HostError(
            f"{VARIABLE} is {target_machine()}, and this machine is {platform.machine()}",
            f"use HOST=vm or a group of {target_machine()} hosts, or: unset {VARIABLE}",
        )
