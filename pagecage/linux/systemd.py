"""systemd units of a trial: one slice with the limits, and the workload in a scope inside it.

The slice itself has the properties. They can then be read back before anything runs, and `io.stat`
outlives the scope. A slice made only by `--slice=` loses its `io` files with the last unit that has
an I/O property in it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagecage.errors import HostError
from pagecage.linux.block_device import Disk
from pagecage.linux.cgroup import CGROUP_ROOT, Cgroup
from pagecage.linux.dbus import connected, scope_properties, to_properties
from pagecage.linux.procfs import read_text
from pagecage.model.cage import Cage, property_arguments
from pagecage.process import run

PARENT = "pagecage.slice"
SYSTEM_SOCKET = Path("/run/systemd/private")
_STOP_TRIES = 2
_OOM_POLICY_SINCE = 253  # systemd NEWS: OOMPolicy= is honoured on scopes since 253


@dataclass(frozen=True)
class Systemd:
    """A maker of cgroups: the system's manager, or a user's own with `io` delegated."""

    user: bool
    version: int

    def systemctl(self, *arguments: str) -> list[str]:
        return ["systemctl", *(["--user"] if self.user else []), *arguments]

    def parent_cgroup(self) -> Path:
        if not self.user:
            return CGROUP_ROOT / PARENT
        uid = os.getuid()
        return CGROUP_ROOT / f"user.slice/user-{uid}.slice/user@{uid}.service" / PARENT

    def control_directory(self) -> Path:
        if not self.user:
            return Path("/run/systemd/system.control")
        return runtime_dir() / "systemd/user.control"

    def has_user_manager(self) -> bool | None:
        return user_socket().exists() if self.user else None

    def socket(self) -> Path:
        return user_socket() if self.user else SYSTEM_SOCKET

    def is_reached(self) -> bool:
        return os.access(self.socket(), os.W_OK)

    def cgroup(self, unit: str) -> Cgroup:
        return Cgroup(unified=self.parent_cgroup() / unit)

    def make(
        self, unit: str, cage: Cage, disk: Disk, disks: Mapping[str, Disk] | None = None
    ) -> Cgroup:
        nodes = {name: other.node for name, other in (disks or {}).items()}
        if self.is_reached():
            properties = to_properties(property_arguments(cage, disk.node, nodes))
            with connected(self.socket()) as manager:
                manager.set_properties(unit, properties)
                manager.start(unit)
        else:
            for command in self.make_commands(unit, cage, disk.node, nodes):
                run(command, timeout_seconds=30)
        return self.cgroup(unit)

    def make_commands(
        self, unit: str, cage: Cage, disk: str, disks: Mapping[str, str] | None = None
    ) -> list[list[str]]:
        properties = property_arguments(cage, disk, disks)
        return [
            self.systemctl("set-property", "--runtime", unit, *properties),
            self.systemctl("start", unit),
        ]

    def enter_command(
        self, unit: str, argv: Sequence[str], name: str | None = None, oom_policy: str = "kill"
    ) -> list[str]:
        """Return the command of a scope, which is named after the slice unless `name` is given."""
        policy = ["-p", f"OOMPolicy={oom_policy}"] if self.version >= _OOM_POLICY_SINCE else []
        manager = ["--user"] if self.user else []
        scope = [f"--unit={name or scope_name(unit)}", f"--slice={unit}", *policy]
        return ["systemd-run", *manager, "--quiet", "--scope", "--collect", *scope, "--", *argv]

    def start_scope(self, unit: str, pid: int) -> None:
        policy = {"OOMPolicy": "kill"} if self.version >= _OOM_POLICY_SINCE else {}
        with connected(self.socket()) as manager:
            manager.start_scope(f"{scope_name(unit)}.scope", scope_properties(unit, pid, policy))

    def container_parent(self, unit: str) -> str:
        return unit

    def signal(self, unit: str, name: str) -> None:
        command = self.systemctl("kill", f"--signal={name}", unit)
        run(command, check=False, timeout_seconds=30)

    def remove(self, unit: str) -> None:
        """End and remove the slice. `systemctl revert` would reload all to forget drop-ins."""
        cgroup = self.parent_cgroup() / unit
        for _ in range(_STOP_TRIES):
            reason = self._stop(unit)
            if reason is None or not cgroup.exists():
                break
        else:
            raise HostError(f"{unit} could not be stopped: {reason}", f"systemctl stop {unit}")
        shutil.rmtree(self.control_directory() / f"{unit}.d", ignore_errors=True)

    def remove_commands(self, unit: str) -> list[list[str]]:
        drop_ins = self.control_directory() / f"{unit}.d"
        return [self.systemctl("stop", unit), ["rm", "-r", str(drop_ins)]]

    def _stop(self, unit: str) -> str | None:
        if not self.is_reached():
            done = run(self.systemctl("stop", unit), timeout_seconds=60, check=False)
            return None if done.ok else done.stderr.strip() or f"status {done.status}"
        try:
            with connected(self.socket()) as manager:
                manager.stop(unit)
        except HostError as error:
            return error.message
        return None

    def left_over(self) -> list[str]:
        cgroups = (path.name for path in self.parent_cgroup().glob("pagecage-*.slice"))
        found = self.control_directory().glob("pagecage-*.slice.d")
        return sorted({*cgroups, *(path.name.removesuffix(".d") for path in found)})

    def sweep(self) -> list[str]:
        units = self.left_over()
        for unit in units:
            self.remove(unit)
        return units


def runtime_dir() -> Path:
    """Return this user's runtime directory; `su` does not set the variable (pam_systemd(8))."""
    return Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")


def user_socket() -> Path:
    return runtime_dir() / "systemd/private"


def unit_name(trial_id: str, attempt: int = 1) -> str:
    """Return an attempt's slice; dashes would nest slices (systemd.slice(5))."""
    return f"pagecage-{trial_id.replace('-', '_')}.{attempt}.slice"


def scope_name(unit: str) -> str:
    return unit.removesuffix(".slice").replace("pagecage-", "pagecage-run-")


def systemd_version(systemctl_output: str) -> int:
    words = systemctl_output.split()
    number = words[1].split(".")[0].split("~")[0] if len(words) > 1 else ""
    return int(number) if number.isdigit() else 0


def is_pid1(proc: Path = Path("/proc")) -> bool:
    return (read_text(proc / "1/comm") or "").strip() == "systemd"
