"""Saved states with an agent in standby, derived from a state in which the guest has only booted.

Copying the workloads, starting the agent and attaching bpftrace take an emulated guest more than
ten seconds at each start. A derived state has done that already. Making one takes about as long,
once per version of agent and workloads.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from pagecage.agent.standby import SOCKET_NAME
from pagecage.digests import text_sha256
from pagecage.errors import HostError
from pagecage.hosts.agent_package import AgentPackage, agent_path
from pagecage.hosts.connection import SharedConnection
from pagecage.hosts.host import Progress
from pagecage.hosts.prerequisites import require_free_space
from pagecage.hosts.ssh import SshTarget, push, ssh_argv
from pagecage.hosts.vm.cache import GuestCache, keep_newest
from pagecage.hosts.vm.guest_client import set_clock
from pagecage.hosts.vm.guest_host import DIRECTORIES
from pagecage.hosts.vm.saved_state import MOST_STATES, SavedState, load, root_target, save
from pagecage.process import run

STANDBY_SECONDS = 300.0
ATTACH_SCRIPT = Path(__file__).with_name("attach_agent.py")
UNIT = "pagecage-standby.service"
_DATA_DIR, _SPOOL_DIR = DIRECTORIES["root"]


def attach_argv(spool_dir: str) -> list[str]:
    """Return the command, in the guest, that attaches to the agent in standby, or starts one."""
    script = ATTACH_SCRIPT.read_text()
    return [
        "python3",
        "-I",
        "-S",
        "-c",
        script,
        f"{spool_dir}/{SOCKET_NAME}",
        agent_path(spool_dir),
    ]


def ensure_standby_state(
    cache: GuestCache,
    base: SavedState,
    package: AgentPackage,
    tracers: Sequence[str],
    progress: Progress,
) -> SavedState:
    """Return the state derived from `base` with this package, made if it is missing.

    It is made in a temporary directory below that of its base, which is renamed at the end. Raises
    HostError if the agent does not start.
    """
    directory = base.directory / "standby" / _key(package, tracers)
    state = SavedState(directory, base.image, base.machine)
    if not directory.exists():
        progress(
            "starting the agent and saving the machine state (about 20 s, once for each version)"
        )
        part = directory.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700, parents=True)
        require_free_space(
            cache.root, base.memory.stat().st_size * 3 // 2, "the saved machine state"
        )
        _make(cache, base, SavedState(part, base.image, base.machine), package, tracers)
        part.rename(directory)
    os.utime(directory)
    keep_newest(directory.parent, MOST_STATES)
    return state


def _key(package: AgentPackage, tracers: Sequence[str]) -> str:
    parts = (package.sha256, ATTACH_SCRIPT.read_text(), *_standby_argv(tracers))
    return text_sha256("\0".join(parts))[:16]


def _make(
    cache: GuestCache,
    base: SavedState,
    state: SavedState,
    package: AgentPackage,
    tracers: Sequence[str],
) -> None:
    began = time.monotonic()
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", base.disk, "-F", "qcow2", state.disk])
    qemu = load(cache, base, state.disk)
    try:
        set_clock(qemu.guest_daemon)
        connection = SharedConnection(
            root_target(base.image, qemu.monitor.forwarded_port()), qemu.sockets, qemu.check
        )
        try:
            connection.wait()
            _start_agent(connection.target, package, tracers)
        finally:
            connection.close()
        save(qemu, state, began)
    finally:
        qemu.quit()


def _start_agent(target: SshTarget, package: AgentPackage, tracers: Sequence[str]) -> None:
    """Copy the agent and the workloads, start the agent, and wait until it is ready."""
    push(target, [package.agent], _SPOOL_DIR)
    push(target, package.programs, f"{_SPOOL_DIR}/bin")
    run(ssh_argv(target, _standby_argv(tracers)), timeout_seconds=STANDBY_SECONDS)
    waiting = (
        f"until [ -S {_SPOOL_DIR}/{SOCKET_NAME} ]; do systemctl is-active --quiet {UNIT} || exit 1;"
        " sleep 0.2; done"
    )
    done = run(
        ssh_argv(target, ["sh", "-c", waiting]), check=False, timeout_seconds=STANDBY_SECONDS
    )
    if not done.ok:
        log = run(
            ssh_argv(
                target, ["journalctl", "--no-pager", "--lines=1", "--output=cat", f"--unit={UNIT}"]
            )
        )
        raise HostError(
            f"the agent did not start in the guest: {log.stdout.strip()}",
            "pagecage host rebuild vm",
        )


def _standby_argv(tracers: Sequence[str]) -> list[str]:
    """Return the command that starts the agent as a service, which outlives the ssh connection.

    The service has the environment of a login by ssh.
    """
    settings = ["--property=OOMPolicy=continue", "--working-directory=/root"]
    environment = {
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "LOGNAME": "root",
        "SHELL": "/bin/bash",
        "USER": "root",
    }
    settings += [f"--setenv={name}={value}" for name, value in environment.items()]
    agent = ["python3", agent_path(_SPOOL_DIR), "standby", _SPOOL_DIR, _DATA_DIR, *tracers]
    return ["systemd-run", "--quiet", "--collect", f"--unit={UNIT}", *settings, *agent]
