"""A shell in a cage, for somebody at a terminal: limits read back and shown first, all of it gone when they leave."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pagecage.agent.collectors.collector import CollectorContext
from pagecage.agent.host_session import alone, sweep
from pagecage.agent.limits.io_max_controller import IoMaxController, rewrites_io_max
from pagecage.agent.limits.limit_meters import LimitMeter, meters
from pagecage.agent.protocol.request import ShellRequest
from pagecage.agent.system import cgroupfs
from pagecage.agent.system.block_device import Disk, resolve_disk
from pagecage.agent.system.child_processes import ToolProcesses
from pagecage.agent.system.facts import find_systemd, read_facts
from pagecage.agent.system.interruption import Interrupted, Interruption
from pagecage.agent.system.systemd import scope_command, start_slice, stop_slice, unit_name
from pagecage.errors import EXIT_INTERRUPTED, HostError
from pagecage.model.cage import (
    IO_MAX_KEY,
    Cage,
    expected_read_back,
    limits_not_in_force,
)
from pagecage.model.requirements import check_host
from pagecage.process import Process, spawn

_UNIT = unit_name("shell")
CAGE_VARIABLE = "PAGECAGE_CAGE"


def run_shell(order: ShellRequest) -> int:
    """Make the slice, show it, run the shell in it, remove it; the shell's exit status (128 and more: a signal's).

    Raises HostError when the host cannot give the cage, or somebody else measures on it.
    """
    systemd, interruption = find_systemd(order.user), Interruption()
    with alone(Path(order.spool_dir)), ExitStack() as cleanup:
        sweep(systemd, Path(order.spool_dir))
        interruption.listen()
        # At a terminal Ctrl-C is for what runs in the shell. A handler, since to ignore a signal would be inherited.
        signal.signal(signal.SIGINT, lambda *_: None)
        facts = read_facts(Path(order.directory), order.user)
        if missed := check_host(facts):
            raise HostError(missed[0].reason, missed[0].hint)
        disk = resolve_disk(Path(order.directory))
        cleanup.callback(stop_slice, systemd, _UNIT)
        cgroup = start_slice(systemd, _UNIT, order.cage, disk.node)
        is_played = rewrites_io_max(order.cage, facts)
        _show(order.cage, disk, cgroup, is_played)
        if is_played:
            cleanup.enter_context(_played(order.cage, disk, cgroup))
        argv = scope_command(systemd, _UNIT, [os.environ.get("SHELL") or "/bin/sh"], oom_policy="continue")
        return _wait(spawn(argv, stdin=None, stdout=None, stderr=None, cwd=Path(order.directory),
                           env={CAGE_VARIABLE: order.cage.name}), interruption)  # fmt: skip


@contextmanager
def _played(cage: Cage, disk: Disk, cgroup: Path) -> Iterator[None]:
    """Within it credits drain and refill, and a limit that reads and writes share is divided between them."""
    with TemporaryDirectory() as folder:
        around = CollectorContext(Path(folder), disk, cgroup, (), ToolProcesses(Path(folder)))
        player = IoMaxController(around, cage, keeps_series=False)
        player.start()
        try:
            yield
        finally:
            if player.stop().reason:
                sys.stderr.write(f"{player.to_json()['error']}\n")


def _show(cage: Cage, disk: Disk, cgroup: Path, is_played: bool) -> None:
    """Print what the kernel says is in force. Raises HostError where that is not what was asked for."""
    read_back = cgroupfs.read_limits(cgroup, disk.maj_min)
    above = {str(one): cgroupfs.read_limits(one, disk.maj_min) for one in cgroupfs.ancestors(cgroup)}
    if wrong := limits_not_in_force(expected_read_back(cage), read_back, above):
        raise HostError(f"the limits are not in force: {'; '.join(wrong)}", "pagecage doctor")
    sys.stdout.write("\n".join(lines(cage, disk, cgroup, read_back, is_played)) + "\n")
    sys.stdout.flush()


def lines(cage: Cage, disk: Disk, cgroup: Path, read_back: Mapping[str, str], is_played: bool = True) -> Sequence[str]:
    """What stands above the first prompt. `is_played`: io.max is rewritten while the shell is open, as `meters` ask."""
    return [
        f"cage {cage.name} on {disk.node} ({disk.filesystem} at {disk.mount_point})",
        *(f"  {name:<16} {value}" for name, value in _in_force(read_back)),
        *(f"  {_told(meter, is_played)}" for meter in meters(cage)),
        f"read back from {cgroup}; it is removed when you leave (exit)",
    ]


def _told(meter: LimitMeter, is_played: bool) -> str:
    """What rewrites io.max while the shell is open: credits, and a limit that both directions share."""
    bucket, names = meter.bucket, " and ".join(f"io.max.{IO_MAX_KEY[prop]}" for prop in meter.counters)
    shared = " together" if len(meter.counters) > 1 else ""
    if not is_played:
        what = "no credits" if meter.bursts else "no limit shared"
        return f"{names}: {what}, since rewriting io.max may hang this kernel (before 6.1)"
    if not meter.bursts:
        return f"{names} share {bucket.base:.0f}: what one leaves of it the other may take"
    filled = f"{bucket.credits:.0f} of {bucket.capacity:.0f} credits"
    return f"{names}{shared} {bucket.rate:.0f} while credits last ({filled}), then the base of {bucket.base:.0f}"


def _in_force(read_back: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    limits = [(name, value) for name, value in read_back.items() if not value.startswith("max")]
    yield from limits or [("no limits", "")]


def _wait(shell: Process[bytes], interruption: Interruption) -> int:
    """Wait for the shell, then have the terminal again: one that was killed did not give it back (tcsetpgrp(3))."""
    try:
        status = shell.wait()
    except Interrupted:
        return EXIT_INTERRUPTED
    finally:
        with interruption.held():
            _take_terminal()
    return status if status >= 0 else 128 - status


def _take_terminal() -> None:
    if os.isatty(0):
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(0, os.getpgrp())
