"""Requirements of trials, checked against a host's facts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from pagecage.model.cage import Cage
from pagecage.model.json_codec import JsonView
from pagecage.model.trial import CGROUPFS, OWN_LIMITS, WITHOUT_LIMITS, Trial, missing_packages
from pagecage.units import format_bytes

_MIN_KERNEL_FOR_REWRITING = (
    6,
    1,
)  # before, rewriting io.max could hang throttled I/O (commit a880ae93e5b5)
_MIN_SYSTEMD = 244  # `systemctl set-property --runtime` on slices with path-valued I/O limits


class Requirement(StrEnum):
    """A property of the host. The value is shown to users and kept in records."""

    SYSTEMD_PID1 = "systemd_pid1"
    SYSTEMD_VERSION = "systemd_version"
    USER_MANAGER = "user_manager"
    CGROUP_V2 = "cgroup_v2"
    MEMORY_CONTROLLER = "memory_controller"
    IO_CONTROLLER = "io_controller"
    CPU_CONTROLLER = "cpu_controller"
    LOCAL_DISK = "local_disk"
    OTHER_DISK = "other_disk"
    QUEUE_SETTINGS = "queue_settings"
    WORKLOAD_MEMORY = "workload_memory"
    WORKLOAD = "workload"
    LIMITS = "limits"
    DATA = "data"
    METADATA = "metadata"
    PORT = "port"
    STORAGE = "storage"
    MACHINE_MEMORY = "machine_memory"
    DIRTY_LIMITS = "dirty_limits"
    DRIVER = "driver"
    VOLUME = "volume"
    PACKAGES = "packages"
    SCRIPT = "script"


@dataclass(frozen=True)
class MissedRequirement:
    """An unmet requirement, with the reason and a fix."""

    requirement: Requirement
    reason: str
    hint: str = "use HOST=vm"

    def to_json(self) -> dict[str, str]:
        return {"requirement": self.requirement.value, "reason": self.reason, "hint": self.hint}


class RequirementMissed(Exception):
    """The host lacks what the trial needs."""

    def __init__(self, missed: list[MissedRequirement]) -> None:
        super().__init__("; ".join(one.reason for one in missed))
        self.missed = missed

    @classmethod
    def of(cls, requirement: Requirement, reason: str, hint: str = "") -> RequirementMissed:
        return cls([MissedRequirement(requirement, reason, hint)])


_DROP_IN = "/etc/systemd/system/user@.service.d/50-pagecage.conf"


def delegation_command(uid: int, *, is_running: bool = True) -> str:
    """Return a shell command that delegates controllers to a user's systemd and (re)starts it.

    It needs no checkout, because hosts have none. A running manager must be restarted: it requests
    its controllers only at its start, and neither daemon-reload nor daemon-reexec changes them.
    """
    written = "printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n'"
    start = (
        f"systemctl restart user@{uid}.service" if is_running else f"loginctl enable-linger {uid}"
    )
    return (
        f"{written} | sudo install -D -m 644 /dev/stdin {_DROP_IN} && sudo systemctl daemon-reload"
        f" && sudo {start}"
    )


def check_host(facts: JsonView) -> list[MissedRequirement]:
    """Return the requirements of any caged trial that a host misses, by the agent's facts."""
    return [*check_limits(facts), *check_disk(facts)]


def check_disk(facts: JsonView) -> list[MissedRequirement]:
    """Return the requirement of every trial, also of one without limits, that a host misses."""
    if "error" not in facts["disk"]:
        return []
    reason = facts["disk"]["error"]
    return [MissedRequirement(Requirement.LOCAL_DISK, reason, "name another --data-dir")]


def check_limits(facts: JsonView) -> list[MissedRequirement]:
    """Return what a host lacks to hold limits on memory and I/O, by systemd or by files."""
    return _check_systemd(facts) if cgroup_maker(facts) == "systemd" else _check_cgroupfs(facts)


def cgroup_maker(facts: JsonView, driver: str = "") -> str:
    """Return the maker of the cgroups of a driver's trials: systemd if it is first, CGROUPFS."""
    if driver == CGROUPFS:
        return CGROUPFS
    is_systemd = driver.startswith("systemd") or facts["systemd"]["pid1"]
    return "systemd" if is_systemd or "cgroupfs" not in facts else CGROUPFS


def default_driver(facts: JsonView) -> str | None:
    """Return the driver of trials that name none; None for systemd's.

    CGROUPFS where systemd is not the first process and the agent can make cgroups itself, else
    WITHOUT_LIMITS, which serves trials without limits only.
    """
    if not check_limits(facts):
        return None if facts["systemd"]["pid1"] else CGROUPFS
    return WITHOUT_LIMITS


def _check_cgroupfs(facts: JsonView, *needed: str) -> list[MissedRequirement]:
    """Return the obstacles to cgroups made by files, for these controllers and those of all."""
    obstacles = facts.get("cgroupfs", {}).get("obstacles", [])
    return [
        MissedRequirement(
            Requirement(f"{one['controller']}_controller"), one["reason"], one["hint"]
        )
        for one in obstacles
        if one["controller"] in {"memory", "io", *needed}
    ]


def _check_systemd(facts: JsonView) -> list[MissedRequirement]:
    missed = []
    systemd, needs = facts["systemd"], Requirement
    if not systemd["pid1"]:
        reason = "systemd is not the first process here"
        missed.append(MissedRequirement(needs.SYSTEMD_PID1, reason))
    elif systemd["version"] < _MIN_SYSTEMD:
        reason = f"systemd {systemd['version']} is older than {_MIN_SYSTEMD}"
        missed.append(MissedRequirement(needs.SYSTEMD_VERSION, reason))
    if not facts["cgroup"]["v2"]:
        reason = "/sys/fs/cgroup is not the unified (v2) hierarchy"
        hint = "boot with systemd.unified_cgroup_hierarchy=1, or use HOST=vm"
        missed.append(MissedRequirement(needs.CGROUP_V2, reason, hint))
    # `su` and logins without PAM start no manager of the user's.
    if systemd["pid1"] and systemd.get("user_manager") is False:
        uid = facts["uid"]
        reason = f"this user's own systemd (user@{uid}.service) is not running"
        start = delegation_command(uid, is_running=False)
        hint = f"use HOST=vm, which does not need it, or start it: {start}"
        return [*missed, MissedRequirement(needs.USER_MANAGER, reason, hint)]
    return missed + [m for name in ("memory", "io") if (m := _controller(name, facts))]


def _controller(name: str, facts: JsonView) -> MissedRequirement | None:
    cgroup = facts["cgroup"]
    if name in cgroup["controllers"]:
        return None
    hint = "use HOST=vm, or boot with cgroup_enable=memory" if name == "memory" else "use HOST=vm"
    if facts["systemd"]["user"]:
        hint = (
            "use HOST=vm, which needs no delegation, or delegate it (this restarts the user's"
            " systemd and ends its programs, including a desktop session):"
            f" {delegation_command(facts['uid'])}"
        )
    reason = f"the {name} controller is not available to {cgroup['manager']}"
    return MissedRequirement(Requirement(f"{name}_controller"), reason, hint)


def check_trial(facts: JsonView, trial: Trial) -> list[MissedRequirement]:
    """Return the requirements of this trial that a host misses, including those of `check_host`."""
    missed = check_disk(facts) + _check_driver(facts, trial)
    is_root, wanted_kb = facts["uid"] == 0, trial.read_ahead_kb
    has_kb = facts["disk"].get("queue_settings", {}).get("read_ahead_kb")
    if wanted_kb is not None and not is_root and has_kb != str(wanted_kb):
        reason = f"read_ahead_kb must be {wanted_kb}, and only root may set it"
        file = f"/sys/block/{facts['disk'].get('name')}/queue/read_ahead_kb"
        hint = f"echo {wanted_kb} | sudo tee {file}"
        missed.append(MissedRequirement(Requirement.QUEUE_SETTINGS, reason, hint))
    limited = trial.cage.cgroup_part
    has_credits = any(disk.burst for disk in limited.by_disk.values())
    if has_credits and not may_rewrite_io_max(facts):
        reason = (
            "burst credits rewrite io.max, which may hang throttled I/O on kernel"
            f" {facts['kernel']} (before 6.1)"
        )
        missed.append(MissedRequirement(Requirement.LIMITS, reason))
    missed += _unsupported(trial)
    if lacking := missing_packages(facts, trial.packages):
        missed.append(MissedRequirement(Requirement.PACKAGES, *lacking))
    missed += [] if is_root else _needs_root(trial)
    limit, least = trial.cage.properties.get("MemoryMax"), trial.workload.min_memory_bytes
    if limit is not None and limit < least:
        reason = (
            f"MemoryMax of {format_bytes(limit)} is below the {format_bytes(least)} that"
            f" {trial.workload.program} needs"
        )
        hint = "choose a larger SIZE or cage"
        missed.append(MissedRequirement(Requirement.WORKLOAD_MEMORY, reason, hint))
    return missed


def _check_driver(facts: JsonView, trial: Trial) -> list[MissedRequirement]:
    if trial.driver == WITHOUT_LIMITS:
        reasons = []
        if trial.cage.cgroup_part.has_limits:
            reasons.append(f"limits of {trial.cage.name} need cgroups, which {trial.driver} lacks")
        if trial.before is not None and trial.before.slice == "other":
            reasons.append(
                f"a setup step in a slice of its own needs cgroups, which {trial.driver} lacks"
            )
        return [MissedRequirement(Requirement.LIMITS, reason, "use HOST=vm") for reason in reasons]
    has_quota = "CPUQuota" in trial.cage.properties
    if cgroup_maker(facts, trial.driver) == CGROUPFS:
        missed = _check_cgroupfs(facts, *(["cpu"] if has_quota else []))
        return missed or check_hierarchy(facts, trial.cage, writes=bool(trial.writes_bytes))
    cpu = _controller("cpu", facts) if has_quota else None
    return _check_systemd(facts) + ([cpu] if cpu else [])


def check_hierarchy(facts: JsonView, cage: Cage, *, writes: bool = True) -> list[MissedRequirement]:
    """Return the cage's limits that the controllers of version 1 cannot hold.

    They have no memory.high, and charge buffered writes to no cgroup (cgroup-v1/blkio-
    controller.rst). `writes` is False if the trial is not known to write; the verdict then judges
    the limit.
    """
    missed, v1 = [], facts.get("cgroupfs", {}).get("v1", [])
    if facts["systemd"]["pid1"]:
        return []
    limits = [disk.properties for disk in cage.cgroup_part.by_disk.values()]
    if "memory" in v1 and "MemoryHigh" in limits[0]:
        reason = "MemoryHigh needs the memory controller of cgroup v2, which is on v1 here"
        hint = "use HOST=vm, or boot with cgroup_no_v1=memory"
        missed.append(MissedRequirement(Requirement.CGROUP_V2, reason, hint))
    names = dict.fromkeys(name for each in limits for name in each if name.startswith("IOWrite"))
    if "blkio" in v1 and names and writes:
        reason = f"cgroup v1 does not hold {' and '.join(names)} for buffered writes"
        hint = "use --enforced-by volume, HOST=vm, or boot with cgroup_no_v1=blkio,memory"
        missed.append(MissedRequirement(Requirement.CGROUP_V2, reason, hint))
    return missed


def _unsupported(trial: Trial) -> Iterator[MissedRequirement]:
    """Yield what the trial's driver, or its simulated volume, cannot do."""
    cage, driver = trial.cage, trial.driver
    hint = "use --driver docker or systemd-scope"
    if driver in OWN_LIMITS and cage.disks:
        reason = f"{driver} limits one disk, and {cage.name} names several"
        yield MissedRequirement(Requirement.DRIVER, reason, hint)
    if driver in OWN_LIMITS and cage.cgroup_part.burst:
        reason = f"burst credits need the limits on the trial's slice, and {driver} sets them"
        yield MissedRequirement(Requirement.DRIVER, f"{reason} elsewhere", hint)
    if trial.storage == "container_layer" and not driver.startswith("docker"):
        reason = f"{driver} does not make a container with a layer for the data"
        yield MissedRequirement(Requirement.DRIVER, reason, "use --driver docker")
    if cage.is_volume and trial.storage != "data":
        reason = (
            f"a simulated volume is a disk of its own, and the trial names a {trial.storage} disk"
        )
        hint = "use storage data or --enforced-by cgroup"
        yield MissedRequirement(Requirement.VOLUME, reason, hint)


def may_rewrite_io_max(facts: JsonView) -> bool:
    """Return whether this kernel supports rewriting io.max while I/O is throttled."""
    match = re.match(r"(\d+)\.(\d+)", str(facts["kernel"]))
    return ((int(match[1]), int(match[2])) if match else (0, 0)) >= _MIN_KERNEL_FOR_REWRITING


def _needs_root(trial: Trial) -> Iterator[MissedRequirement]:
    if trial.storage != "data":
        reason = f"only root may make a {trial.storage} disk"
        yield MissedRequirement(Requirement.STORAGE, reason)
    if trial.machine_memory_bytes is not None:
        yield MissedRequirement(Requirement.MACHINE_MEMORY, "only root may reserve memory")
    if trial.dirty_limits:
        names = ", ".join(f"vm.{name}" for name in trial.dirty_limits)
        yield MissedRequirement(Requirement.DIRTY_LIMITS, f"only root may set {names}")
