"""`pagecage host setup`: programs of this machine's package manager that pagecage starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from pagecage.ansible import TaskEvent
from pagecage.cli.output import notify
from pagecage.errors import EXIT_OK
from pagecage.hosts.controller import install_programs

Purpose = Literal["vm", "local", "volume"]
_ROLE_PURPOSES = {"vm": "guest", "local": "record", "volume": "volume"}
_SYSTEMD = Path("/run/systemd/system")  # sd_booted(3)


def setup(*purposes: Annotated[Purpose, Parameter(metavar="PURPOSE")]) -> int:
    """Install the programs of this machine that pagecage starts, with its package manager.

    A user who may not install packages is shown the command to run as root.

    Parameters
    ----------
    purposes
        vm: make and run the guest. local: record trials on this machine. volume: serve simulated
        volumes. Without any: vm and volume, and local if systemd runs here
    """
    chosen = purposes or ("vm", "volume", *(("local",) if _SYSTEMD.exists() else ()))
    notify(f"installing what is missing for {', '.join(dict.fromkeys(chosen))} ...")
    install_programs([_ROLE_PURPOSES[name] for name in dict.fromkeys(chosen)], _show)
    notify("this machine has the programs; `pagecage doctor` shows what else it lacks")
    return EXIT_OK


def _show(event: TaskEvent) -> None:
    """Show each change and each note about packages that this system lacks."""
    if event.changed and event.outcome == "ok":
        notify(event.task)
    for line in event.stdout.splitlines():
        if line.startswith("note: "):
            notify(line)
