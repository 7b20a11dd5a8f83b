"""`pagecage shell`: an interactive shell in a cage."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.agent.protocol import ShellRequest
from pagecage.checkout import TOP
from pagecage.cli.output import examples
from pagecage.errors import PagecageError
from pagecage.hosts.agent_package import agent_path, make_agent_package
from pagecage.hosts.host import Host, ResourceNeeds
from pagecage.model.cage import Cage
from pagecage.model.json_codec import to_json
from pagecage.planning.cage_choice import choose_cage
from pagecage.planning.host_choice import choose_host
from pagecage.planning.options import ExistingFolder, HostName, VolumeOptions
from pagecage.process import spawn
from pagecage.terminal import notify
from pagecage.units import parse_size_bytes

app = App(name="shell", help_epilogue=examples("shell"), usage="pagecage shell [OPTIONS] CAGE")
_NO_NEEDS = ResourceNeeds(0, 0)


@app.default
def shell(
    cage: str,
    /,
    *,
    volume: VolumeOptions = VolumeOptions(),  # noqa: B008 - frozen
    host: HostName = "auto",
    data_dir: ExistingFolder | None = None,
    data_size: Annotated[str | None, Parameter(metavar="SIZE")] = None,
) -> int:
    """Open a shell in a cage.

    The limits are read back and shown first. They are removed when the shell ends.

    Parameters
    ----------
    cage
        Cage, file, or volume of the catalogue (see `pagecage cage list`)
    host
        Host to run on: auto, local or vm
    data_dir
        Directory to start in, whose disk is limited; by default the current one (host local)
    data_size
        Size of the data, for example 1GiB; for a cage that limits memory to a share of it
    """
    size_bytes = None if data_size is None else parse_size_bytes(data_size, "--data-size")
    limits = choose_cage(cage, volume, size_bytes)
    if not os.isatty(0):
        raise PagecageError(
            "standard input is not a terminal", f"pagecage replay {cage} --no-control -- COMMAND"
        )
    _refuse_several_disks(limits)
    package = make_agent_package(TOP)
    machine = choose_host(host, data_dir or (None if host == "vm" else Path.cwd()), notify)
    try:
        machine.prepare(_NO_NEEDS, notify)
        machine.start()
        machine.install(package)
        return _run(machine, limits)
    finally:
        machine.stop()


def _refuse_several_disks(cage: Cage) -> None:
    if cage.disks:
        message = f"{cage.name} names several disks, and a shell limits only that of its directory"
        raise PagecageError(message, f"pagecage replay {cage.name} --no-control -- COMMAND")


def _run(machine: Host, cage: Cage) -> int:
    spool = machine.spool_dir
    request = ShellRequest(cage, machine.data_dir, spool, machine.user)
    text = json.dumps(to_json(request))
    argv = machine.interactive(["python3", agent_path(spool), "shell", text])
    process = spawn(argv, stdin=None, stdout=None, stderr=None)
    # Ctrl-C is meant for the program in the shell.
    previous = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, previous)
