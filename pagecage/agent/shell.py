"""An interactive shell in a cage."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pagecage.agent.collectors.collector import CollectorContext
from pagecage.agent.facts import find_systemd, read_facts
from pagecage.agent.host_session import alone, sweep
from pagecage.agent.limits.calibration import LimitMeter, meters
from pagecage.agent.limits.fidelity import IoMaxController, rewrites_io_max
from pagecage.agent.protocol import ShellRequest
from pagecage.errors import EXIT_INTERRUPTED, HostError
from pagecage.linux.block_device import Disk, resolve_disk
from pagecage.linux.cgroup import Cgroup, ancestors
from pagecage.linux.cgroup_files import read_limits
from pagecage.linux.cgroupfs import Cgroupfs
from pagecage.linux.child_processes import Interrupted, Interruption, ToolProcesses
from pagecage.linux.systemd import unit_name
from pagecage.linux.trial_processes import CgroupMaker, CgroupProcesses
from pagecage.model.cage import IO_MAX_KEY, Cage, expected_read_back, limits_not_in_force
from pagecage.model.requirements import (
    MissedRequirement,
    check_hierarchy,
    check_host,
    default_driver,
)
from pagecage.model.trial import CGROUPFS
from pagecage.process import Process, spawn
from pagecage.units import kernel_page_bytes

_UNIT = unit_name("shell")
CAGE_VARIABLE = "PAGECAGE_CAGE"


def run_shell(request: ShellRequest) -> int:
    """Make the slice, show its limits, run a shell in it, and remove it.

    Returns the shell's exit status (128 + n: ended by signal n). Raises HostError if this host
    cannot provide the cage, or if another agent is running on it.
    """
    systemd, spool = find_systemd(request.user), Path(request.spool_dir)
    interruption = Interruption()
    with alone(spool), ExitStack() as cleanup:
        sweep(systemd, spool)
        interruption.listen()
        # Ctrl-C at a terminal is for programs in the shell. They would inherit SIG_IGN, but not a
        # handler.
        signal.signal(signal.SIGINT, lambda *_: None)
        facts = read_facts(Path(request.directory), request.user)
        if missed := check_host(facts) + check_hierarchy(facts, request.cage, writes=False):
            raise HostError(missed[0].reason, missed[0].hint)
        maker: CgroupMaker = Cgroupfs(spool) if default_driver(facts) == CGROUPFS else systemd
        disk = resolve_disk(Path(request.directory))
        cleanup.callback(maker.remove, _UNIT)
        cgroup = maker.make(_UNIT, request.cage, disk)
        enforces = rewrites_io_max(request.cage, facts)
        _show(request.cage, disk, cgroup, enforces, check_hierarchy(facts, request.cage))
        if enforces:
            cleanup.enter_context(_controlled(maker, request.cage, disk, cgroup))
        env = {CAGE_VARIABLE: request.cage.name}
        shell = os.environ.get("SHELL") or "/bin/sh"
        argv = maker.enter_command(_UNIT, [shell], oom_policy="continue")
        return _wait(
            spawn(argv, stdin=None, stdout=None, stderr=None, cwd=Path(request.directory), env=env),
            interruption,
        )


@contextmanager
def _controlled(maker: CgroupMaker, cage: Cage, disk: Disk, cgroup: Cgroup) -> Iterator[None]:
    with TemporaryDirectory() as folder:
        processes = CgroupProcesses(maker, _UNIT, cgroup)
        context = CollectorContext(Path(folder), disk, processes, (), ToolProcesses(Path(folder)))
        controller = IoMaxController(context, cage, keeps_series=False)
        controller.start()
        try:
            yield
        finally:
            if controller.stop().reason:
                sys.stderr.write(f"{controller.to_json()['error']}\n")


def _show(
    cage: Cage, disk: Disk, cgroup: Cgroup, enforces: bool, weak: Sequence[MissedRequirement]
) -> None:
    """Print the limits that the kernel reports. Raises HostError if they differ from the cage."""
    read_back = read_limits(cgroup, disk.maj_min)
    above = {str(one): read_limits(one, disk.maj_min) for one in ancestors(cgroup)}
    expected = expected_read_back(cage, kernel_page_bytes())
    if wrong := limits_not_in_force(expected, read_back, above):
        raise HostError(f"the limits are not in force: {'; '.join(wrong)}", "pagecage doctor")
    limits = [(name, value) for name, value in read_back.items() if not value.startswith("max")]
    lines = [
        f"cage {cage.name} on {disk.node} ({disk.filesystem} at {disk.mount_point})",
        *(f"  {name:<16} {value}" for name, value in limits or [("no limits", "")]),
        *(f"  {_describe(meter, enforces)}" for meter in meters(cage)),
        f"read back from {cgroup}; it is removed when you leave (exit)",
        *(f"  {one.reason}" for one in weak),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _describe(meter: LimitMeter, enforces: bool) -> str:
    bucket = meter.bucket
    names = " and ".join(f"io.max.{IO_MAX_KEY[prop]}" for prop in meter.counters)
    if not enforces:
        missing = "no credits" if meter.bursts else "no shared limit"
        return f"{names}: {missing}, since rewriting io.max may hang this kernel (before 6.1)"
    if not meter.bursts:
        return f"{names} share {bucket.base:.0f}: either may use what the other leaves"
    shared = " together" if len(meter.counters) > 1 else ""
    return (
        f"{names}{shared} {bucket.rate:.0f} while credits last ({bucket.credits:.0f} of"
        f" {bucket.capacity:.0f} credits), then the base of {bucket.base:.0f}"
    )


def _wait(shell: Process[bytes], interruption: Interruption) -> int:
    """Wait, then take the terminal back (tcsetpgrp(3)); end a shell before its slice goes."""
    try:
        status = shell.wait()
    except Interrupted:
        with interruption.held():
            shell.kill()
            shell.wait()
        return EXIT_INTERRUPTED
    finally:
        with interruption.held():
            if os.isatty(0):
                signal.signal(signal.SIGTTOU, signal.SIG_IGN)
                os.tcsetpgrp(0, os.getpgrp())
    return status if status >= 0 else 128 - status
