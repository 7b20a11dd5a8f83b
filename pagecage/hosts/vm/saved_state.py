"""Saved states of a guest, from which trials start."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pagecage.agent.session import SOCKET_NAME
from pagecage.errors import HostError
from pagecage.hosts.agent_package import AgentPackage, agent_path
from pagecage.hosts.controller import require_free_space
from pagecage.hosts.host import Progress
from pagecage.hosts.ssh import CONNECT_SECONDS, SharedConnection, SshTarget, push, ssh_argv
from pagecage.hosts.vm.cache import FileBelow, GuestCache, keep_newest
from pagecage.hosts.vm.disks import DIRECTORIES
from pagecage.hosts.vm.guest_client import SCRIPT, set_clock, start_argv
from pagecage.hosts.vm.image import HOST_KEY_ALIAS, GuestImage
from pagecage.hosts.vm.qemu import GuestMachine, Qemu, console_tail, make_sockets_dir, qemu_argv
from pagecage.process import run
from pagecage.whole_files import text_sha256, write_whole

MOST_STATES = 3
BOOT_SECONDS = 300.0
SAVE_SECONDS = 120.0
RESTORE_SECONDS = 60.0
SESSION_END_SECONDS = 2.0
"""Time that sshd and logind need to forget the connection, so that it is not in the saved state."""
Provision = Callable[[SshTarget, Progress], None]
_OVERLAY = ("qemu-img", "create", "-q", "-f", "qcow2")


@dataclass(frozen=True)
class SavedState:
    """A finished state: the guest's memory and disk overlay of one moment."""

    directory: Path
    image: GuestImage
    machine: GuestMachine

    @property
    def state_id(self) -> str:
        """The name of this state: its key, and the time at which it was made."""
        about = json.loads((self.directory / "about.json").read_text())
        return f"{self.directory.name}-{about['made_unix_seconds']}"

    # The overlay over the image's disk, which stays as it was when the memory was saved.
    disk = FileBelow("disk.qcow2")
    memory = FileBelow("memory.bin")  # QEMU's migration stream

    def count_restore(self) -> int:
        """Return the number of this restore, counted from 1."""
        counter = self.directory / "restores"
        number = int(counter.read_text()) + 1 if counter.exists() else 1
        write_whole(counter, str(number))
        return number


def root_target(image: GuestImage, port: int) -> SshTarget:
    return SshTarget("127.0.0.1", port, "root", image.identity, image.known_hosts, HOST_KEY_ALIAS)


def ensure_state(
    cache: GuestCache,
    image: GuestImage,
    machine: GuestMachine,
    provisioning_key: str,
    provision: Provision,
    progress: Progress,
) -> SavedState:
    """Return the saved state of this machine: boot, provision, settle, save. Raises HostError."""
    parts = (image.key, provisioning_key, SETTLE, SCRIPT.read_text(), *machine.key_parts())
    state = SavedState(cache.states / text_sha256("\0".join(parts))[:16], image, machine)

    def boot(part: SavedState) -> Qemu:
        run([*_OVERLAY, "-F", "raw", "-b", image.disk, part.disk])
        progress("booting the guest (about 30 s, once)")
        qemu = _started(cache, part, part.disk)
        qemu.monitor.execute("cont")
        return qemu

    def settle(qemu: Qemu) -> None:
        connection = _connection(image, qemu, BOOT_SECONDS)
        try:
            connection.wait()
        except HostError as error:
            tail = console_tail(cache.scratch / "console.log")
            reason = f"the guest did not boot ({error.message}); its console ends:\n{tail}"
            raise HostError(reason, "pagecage host rebuild vm") from None
        with connection as target:
            provision(target, progress)
            progress("settling and saving the machine state")
            run(ssh_argv(target, ["sh", "-c", SETTLE]), timeout_seconds=180)
            run(ssh_argv(target, start_argv()))

    return _made(cache, state, machine.memory_bytes // 2, boot, settle)


def _made(
    cache: GuestCache,
    state: SavedState,
    needed_bytes: int,
    start: Callable[[SavedState], Qemu],
    work: Callable[[Qemu], None],
) -> SavedState:
    """Return a state, made in a temporary directory that is renamed at the end, if missing."""
    if not state.directory.exists():
        part = replace(state, directory=state.directory.with_suffix(".part"))
        shutil.rmtree(part.directory, ignore_errors=True)
        part.directory.mkdir(mode=0o700, parents=True)
        require_free_space(cache.root, needed_bytes, "the saved machine state")
        began = time.monotonic()
        qemu = start(part)
        try:
            work(qemu)
            _save(qemu, part, began)
        finally:
            qemu.quit()
        part.directory.rename(state.directory)
    os.utime(state.directory)
    keep_newest(state.directory.parent, MOST_STATES)
    return state


SETTLE = (
    "systemctl is-system-running --wait > /dev/null; sync; echo 3 > /proc/sys/vm/drop_caches; "
    # Read the programs of every trial once, so that the first trial after a restore is not slower.
    "for tool in iostat sar vmtouch bpftrace fio python3 findmnt lsblk; do $tool --version; done >"
    " /dev/null 2>&1; systemd-run --quiet --scope --slice=pagecage-warm true; systemctl stop"
    " pagecage.slice; python3 -c 'import json, ctypes, subprocess, selectors, dataclasses'; sync"
)


def _started(
    cache: GuestCache,
    state: SavedState,
    disk: Path,
    words: Sequence[str] = (),
    *,
    dies_with_parent: bool = True,
) -> Qemu:
    sockets = make_sockets_dir(cache)
    argv = qemu_argv(state.machine, state.image, disk, sockets, cache.scratch / "console.log")
    return Qemu.start([*argv, *words], sockets, cache.scratch, dies_with_parent=dies_with_parent)


def _connection(
    image: GuestImage, qemu: Qemu, limit_seconds: float = CONNECT_SECONDS
) -> SharedConnection:
    target = root_target(image, qemu.monitor.forwarded_port())
    return SharedConnection(target, qemu.sockets, qemu.check, limit_seconds)


def _save(qemu: Qemu, state: SavedState, began: float) -> None:
    """Stop the guest and save its memory (QMP `migrate`), after it has forgotten the connection."""
    time.sleep(SESSION_END_SECONDS)
    qemu.monitor.execute("stop")
    qemu.monitor.execute("migrate-set-parameters", max_bandwidth=1 << 40)
    qemu.monitor.execute("migrate", uri=f"exec:cat > {shlex.quote(str(state.memory))}")
    deadline = time.monotonic() + SAVE_SECONDS
    while (status := qemu.monitor.execute("query-migrate").get("status")) != "completed":
        if status == "failed" or time.monotonic() > deadline:
            reason = f"the machine state was not saved: QEMU reports {status}"
            raise HostError(reason, "pagecage host rebuild vm")
        time.sleep(0.05)
    about = {
        "made_unix_seconds": int(time.time()),
        "took_seconds": round(time.monotonic() - began, 1),
    }
    (state.directory / "about.json").write_text(json.dumps(about))


def restore(
    cache: GuestCache, state: SavedState, disk: Path | None = None, *, dies_with_parent: bool = True
) -> Qemu:
    """Return a new running QEMU in this state. Raises HostError if QEMU fails.

    It writes to `disk`, whose contents are those of the state, by default to a temporary overlay.
    """
    words = ["-snapshot"] if disk is None else []
    words += ["-incoming", f"exec:cat {shlex.quote(str(state.memory))}"]
    qemu = _started(cache, state, disk or state.disk, words, dies_with_parent=dies_with_parent)
    try:
        # A `cont` before the saved state has arrived is lost.
        deadline = time.monotonic() + RESTORE_SECONDS
        while qemu.monitor.status() != "paused":
            qemu.check()
            if time.monotonic() > deadline:
                raise HostError("the saved machine state did not load", "pagecage host rebuild vm")
            time.sleep(0.01)
        qemu.monitor.execute("cont")
    except BaseException:
        qemu.end()
        raise
    return qemu


STANDBY_SECONDS = 300.0
ATTACH_SCRIPT = Path(__file__).with_name("attach_agent.py")
UNIT = "pagecage-standby.service"
_DATA_DIR, _SPOOL_DIR = DIRECTORIES["root"]


def attach_argv(spool_dir: str) -> list[str]:
    """Return the command, in the guest, that attaches to the agent in standby, or starts one."""
    script, socket = ATTACH_SCRIPT.read_text(), f"{spool_dir}/{SOCKET_NAME}"
    return ["python3", "-I", "-S", "-c", script, socket, agent_path(spool_dir)]


def ensure_standby_state(
    cache: GuestCache,
    base: SavedState,
    package: AgentPackage,
    tracers: Sequence[str],
    progress: Progress,
) -> SavedState:
    """Return the state derived from `base` with this package in standby. Raises HostError."""
    parts = (package.sha256, ATTACH_SCRIPT.read_text(), *_standby_argv(tracers))
    directory = base.directory / "standby" / text_sha256("\0".join(parts))[:16]

    def start(part: SavedState) -> Qemu:
        progress(
            "starting the agent and saving the machine state (about 20 s, once for each version)"
        )
        run([*_OVERLAY, "-F", "qcow2", "-b", base.disk, part.disk])
        return restore(cache, base, part.disk)

    def start_agent(qemu: Qemu) -> None:
        set_clock(qemu.guest_daemon)
        with _connection(base.image, qemu) as target:
            push(target, [package.agent], _SPOOL_DIR)
            push(target, package.programs, f"{_SPOOL_DIR}/bin")
            run(ssh_argv(target, _standby_argv(tracers)), timeout_seconds=STANDBY_SECONDS)
            waiting = (
                f"until [ -S {_SPOOL_DIR}/{SOCKET_NAME} ]; do"
                f" systemctl is-active --quiet {UNIT} || exit 1; sleep 0.2; done"
            )
            argv = ssh_argv(target, ["sh", "-c", waiting])
            if not run(argv, check=False, timeout_seconds=STANDBY_SECONDS).ok:
                words = f"journalctl --no-pager --lines=1 --output=cat --unit={UNIT}".split()
                reason = run(ssh_argv(target, words)).stdout.strip()
                message = f"the agent did not start in the guest: {reason}"
                raise HostError(message, "pagecage host rebuild vm")

    needed_bytes = base.memory.stat().st_size * 3 // 2
    return _made(cache, replace(base, directory=directory), needed_bytes, start, start_agent)


def _standby_argv(tracers: Sequence[str]) -> list[str]:
    """Return the command that starts the agent as a service, with the environment of a login."""
    environment = ["HOME=/root", "LANG=C.UTF-8", "LOGNAME=root", "SHELL=/bin/bash", "USER=root"]
    settings = ["--property=OOMPolicy=continue", "--working-directory=/root"]
    settings += [f"--setenv={variable}" for variable in environment]
    agent = ["python3", agent_path(_SPOOL_DIR), "standby", _SPOOL_DIR, _DATA_DIR, *tracers]
    return ["systemd-run", "--quiet", "--collect", f"--unit={UNIT}", *settings, *agent]
