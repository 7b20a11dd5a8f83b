"""Saved states in which an agent waits with everything loaded, derived from one in which the guest has only booted.

Copying the workloads, starting the agent and attaching bpftrace take an emulated guest more than ten seconds at each
start. A derived state has that behind it. It is made in about as long, once for each version of agent and workloads.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from pagecage.agent.standby import SOCKET_NAME
from pagecage.errors import HostError
from pagecage.hosts.agent_package import AgentPackage, agent_path
from pagecage.hosts.connection import SharedConnection
from pagecage.hosts.host import Progress
from pagecage.hosts.ssh import SshTarget, push, ssh_argv
from pagecage.hosts.vm.cache import GuestCache, keep_newest
from pagecage.hosts.vm.guest_client import set_clock
from pagecage.hosts.vm.guest_host import DIRECTORIES
from pagecage.hosts.vm.prerequisites import require_room
from pagecage.hosts.vm.saved_state import SavedState, load, root_target, save
from pagecage.process import run

KEPT_STATES = 3
STANDBY_SECONDS = 120.0
ATTACH_SCRIPT = Path(__file__).with_name("attach_agent.py")
UNIT = "pagecage-standby.service"
_DATA_DIR, _SPOOL_DIR = DIRECTORIES["root"]


def attach_argv(spool_dir: str) -> list[str]:
    """The command, in the guest, that hands its streams to the agent in standby, or becomes a new agent."""
    script = ATTACH_SCRIPT.read_text()
    return ["python3", "-I", "-S", "-c", script, f"{spool_dir}/{SOCKET_NAME}", agent_path(spool_dir)]


def ensure_standby_state(
    cache: GuestCache, base: SavedState, kit: AgentPackage, tracers: Sequence[str], progress: Progress
) -> SavedState:
    """The state derived from `base` with this kit, made now if it is not there.

    Made aside and renamed, like its base, in whose directory it lies. Raises HostError when the agent does not come up.
    """
    directory = base.directory / "standby" / _key(kit, tracers)
    state = SavedState(directory, base.image, base.machine)
    if not directory.exists():
        progress("starting the agent and saving the machine state (about 20 s, once for each version)")
        part = directory.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700, parents=True)
        require_room(cache.root, base.memory.stat().st_size * 3 // 2, "the saved machine state")
        _make(cache, base, SavedState(part, base.image, base.machine), kit, tracers)
        part.rename(directory)
    os.utime(directory)
    keep_newest(directory.parent, KEPT_STATES)
    return state


def _key(kit: AgentPackage, tracers: Sequence[str]) -> str:
    parts = (kit.sha256, ATTACH_SCRIPT.read_text(), *_standby_argv(tracers))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _make(cache: GuestCache, base: SavedState, state: SavedState, kit: AgentPackage, tracers: Sequence[str]) -> None:
    began = time.monotonic()
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", base.disk, "-F", "qcow2", state.disk])
    qemu = load(cache, base, state.disk)
    try:
        set_clock(qemu.caretaker)
        connection = SharedConnection(root_target(base.image, qemu.monitor.forwarded_port()), qemu.sockets, qemu.check)
        try:
            connection.wait()
            _start_agent(connection.target, kit, tracers)
        finally:
            connection.close()
        save(qemu, state, began)
    finally:
        qemu.quit()


def _start_agent(target: SshTarget, kit: AgentPackage, tracers: Sequence[str]) -> None:
    """Copy agent and workloads to where the campaign looks for them, start the agent, wait until it waits."""
    push(target, [kit.agent], _SPOOL_DIR)
    push(target, kit.programs, f"{_SPOOL_DIR}/bin")
    run(ssh_argv(target, _standby_argv(tracers)), timeout_seconds=STANDBY_SECONDS)
    waiting = (
        f"until [ -S {_SPOOL_DIR}/{SOCKET_NAME} ]; do systemctl is-active --quiet {UNIT} || exit 1; sleep 0.2; done"
    )
    done = run(ssh_argv(target, ["sh", "-c", waiting]), check=False, timeout_seconds=STANDBY_SECONDS)
    if not done.ok:
        log = run(ssh_argv(target, ["journalctl", "--no-pager", "--lines=1", "--output=cat", f"--unit={UNIT}"]))
        raise HostError(f"the agent did not start in the guest: {log.stdout.strip()}", "pagecage host rebuild vm")


def _standby_argv(tracers: Sequence[str]) -> list[str]:
    """A service, because it has to live on when our connection ends; with the environment of a login over ssh."""
    settings = ["--property=OOMPolicy=continue", "--working-directory=/root"]
    environment = {"HOME": "/root", "LANG": "C.UTF-8", "LOGNAME": "root", "SHELL": "/bin/bash", "USER": "root"}
    settings += [f"--setenv={name}={value}" for name, value in environment.items()]
    agent = ["python3", agent_path(_SPOOL_DIR), "standby", _SPOOL_DIR, _DATA_DIR, *tracers]
    return ["systemd-run", "--quiet", "--collect", f"--unit={UNIT}", *settings, *agent]
