"""Units of systemd, by `systemctl show`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from pagecage.errors import HostError, PagecageError
from pagecage.importers.systemd import UnitProperties, shown_properties
from pagecage.process import Completed, find_tool, run

_PROPERTIES = (
    "Id,LoadState,ActiveState,ControlGroup,MemoryMax,MemoryHigh,MemorySwapMax,MemoryLimit,"
    "CPUQuotaPerSecUSec,IOReadBandwidthMax,IOWriteBandwidthMax,IOReadIOPSMax,IOWriteIOPSMax,"
    "BlockIOReadBandwidth,BlockIOWriteBandwidth"
)
_ANSWER_SECONDS = 30.0
_UNIT = re.compile(r"^[^/]+\.(?:service|slice|scope|socket|mount|swap)$")
_USER_MANAGER = re.compile(r"^user@([0-9]+)\.service$")

Properties = dict[str, str]


def control_group(unit: str, user: bool) -> str:
    """Return the cgroup of an active unit, as a path below the mount point.

    Raises PagecageError if there is no such unit or if it is inactive, HostError if systemd does
    not answer.
    """
    if not find_tool("systemctl"):
        raise HostError("systemctl is not installed", "name a process: --pid N")
    done = _show([unit], user)
    if not done.ok:
        reason = (done.stderr.strip().splitlines() or ["it printed no reason"])[-1]
        raise HostError(f"systemd does not answer: {reason}", "systemctl status")
    blocks = _blocks(done.stdout)
    found = dict(blocks[0]) if len(blocks) == 1 else {}
    manager = "systemctl --user" if user else "systemctl"
    if found.get("LoadState") in (None, "not-found", "bad-setting", "error"):
        other = "" if user else "; a unit of your own systemd needs --user"
        raise PagecageError(f"there is no unit {unit!r}{other}", f"{manager} list-units --all")
    if not found.get("ControlGroup"):
        state = found.get("ActiveState", "inactive")
        message = f"the unit {found.get('Id', unit)} is {state} and has no cgroup"
        raise PagecageError(f"{message}, so no limit is in force", f"{manager} start {unit}")
    return found["ControlGroup"]


def unit_of(cgroup: Path) -> str | None:
    """Return the unit to which a cgroup belongs by its name, or None."""
    return cgroup.name if _UNIT.match(cgroup.name) else None


def manager_uid(cgroup: Path) -> int | None:
    """Return the user whose own systemd made a cgroup; None for the system's."""
    above = (match for parent in cgroup.parents if (match := _USER_MANAGER.match(parent.name)))
    return next((int(match[1]) for match in above), None)


def requested_properties(cgroups: Sequence[Path]) -> dict[Path, UnitProperties]:
    """Return the properties that are set on the units of these cgroups.

    Units of another user's systemd, and units that systemd does not know, are left out.
    """
    found: dict[Path, UnitProperties] = {}
    for user in (False, True):
        own = [cgroup for cgroup in cgroups if unit_of(cgroup) and _manager(cgroup) is user]
        done = _show([cgroup.name for cgroup in own], user) if own else None
        blocks = _blocks(done.stdout) if done else []
        by_id = {dict(lines).get("Id"): shown_properties(lines) for lines in blocks}
        found |= {cgroup: by_id[cgroup.name] for cgroup in own if cgroup.name in by_id}
    return found


def _manager(cgroup: Path) -> bool | None:
    """Return whether this user's own systemd made the cgroup; None if another user's did."""
    uid = manager_uid(cgroup)
    if uid is None:
        return False
    return True if uid == os.getuid() else None


def _show(units: Sequence[str], user: bool) -> Completed:
    manager = ["--user"] if user else []
    argv = ["systemctl", *manager, "show", f"--property={_PROPERTIES}", "--", *units]
    return run(argv, check=False, timeout_seconds=_ANSWER_SECONDS)


def _blocks(text: str) -> list[list[tuple[str, str]]]:
    """Return the lines of each unit; an empty line separates units (systemctl(1))."""
    blocks = text.strip().split("\n\n")
    pairs = (
        [line.partition("=")[::2] for line in block.splitlines() if "=" in line] for block in blocks
    )
    return [lines for lines in pairs if lines]
