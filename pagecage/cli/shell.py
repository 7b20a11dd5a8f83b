"""`pagecage shell`: a prompt in a cage, as one works by hand."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from pagecage.agent.protocol.request import ShellRequest, shell_request_to_json
from pagecage.checkout import TOP
from pagecage.cli.examples import examples
from pagecage.cli.output import say
from pagecage.cli.paths import FolderThere
from pagecage.cli.run_options import definitions
from pagecage.cli.run_plan import choose_host
from pagecage.errors import PagecageError
from pagecage.hosts.agent_package import agent_path, make_kit
from pagecage.hosts.host import Host, ResourceNeeds
from pagecage.model.cage import Cage
from pagecage.process import spawn
from pagecage.units import parse_size_bytes

app = App(name="shell", help_epilogue=examples("shell"))
_ANY_NEED = ResourceNeeds(0, 0)


@app.default
def shell(
    cage: str,
    /,
    *,
    host: str = "auto",
    data_dir: FolderThere | None = None,
    data_size: Annotated[str | None, Parameter(name="--data-size")] = None,
) -> int:
    """Open a shell in a cage; its limits are read back and shown first, and leaving it removes them.

    Parameters
    ----------
    cage
        One of cgroups/.
    host
        auto, local or vm.
    data_dir
        Where the shell starts; the disk behind it is limited. Otherwise the present directory (host local).
    data_size
        Size of the data, as in 1GiB, for a cage that is a share of it.
    """
    size_bytes = None if data_size is None else parse_size_bytes(data_size, "--data-size")
    chosen = definitions().cage(cage, size_bytes)
    if not os.isatty(0):
        raise PagecageError("a shell needs a terminal", f"pagecage replay {cage} --no-control -- COMMAND")
    kit, machine = make_kit(TOP), choose_host(host, data_dir or (None if host == "vm" else Path.cwd()), say)
    try:
        machine.prepare(_ANY_NEED, say)
        machine.start()
        machine.install(kit)
        return _run(machine, chosen)
    finally:
        machine.stop()


def _run(machine: Host, cage: Cage) -> int:
    """Hand the terminal to the agent, which hands it to the shell; the shell's exit status."""
    order = json.dumps(shell_request_to_json(ShellRequest(cage, machine.data_dir, machine.spool_dir, machine.user)))
    argv = machine.interactive(["python3", agent_path(machine.spool_dir), "shell", order])
    process = spawn(argv, stdin=None, stdout=None, stderr=None)
    before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for what runs in the shell
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
