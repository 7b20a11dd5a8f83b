"""The campaign: stacks of devices in guests, and each limit on each of them, as several users.

    python -m reliability.disks.campaign [GUEST [USER [STACK...]]]

Findings are stored in docs/trust/disks.json one by one, so that several calls add up.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pagecage.checkout import TOP as CHECKOUT
from pagecage.hosts.agent_package import make_agent_package
from pagecage.hosts.host import ResourceNeeds
from pagecage.hosts.ssh import SshTarget, ssh_argv
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.qemu import CPUS
from pagecage.hosts.vm.vm_host import GuestOptions, VmHost
from pagecage.model.trial import Package
from pagecage.process import PIPE, run, spawn
from reliability.campaign import RESULTS, code_of, read_results, tell, write_results
from reliability.disks import probe, stacks

RESULT = RESULTS / "disks.json"
_DROP_IN = "/etc/systemd/system/user@.service.d/50-pagecage.conf"
_UNDELEGATE = (
    f"rm {_DROP_IN}; systemctl daemon-reload; systemctl restart user@1000.service;"
    " for _ in $(seq 60); do [ -S /run/user/1000/systemd/private ] && break; sleep 1; done"
)
_SPOOL = "/dev/shm/stacks"


@dataclass(frozen=True)
class StackGuest:
    """A guest of the campaign: the name of its cache, its release, and its processors."""

    cache: str
    suite: str
    cpus: int = CPUS


@dataclass(frozen=True)
class Tester:
    """A user for whom limits are tested: account, word for the probe, and a script before."""

    title: str
    account: str
    word: str
    prepare: str = "true"


GUESTS = {
    "debian-13": StackGuest("disks-13", "trixie"),
    "debian-12": StackGuest("disks-12", "bookworm"),
    "ubuntu-24.04": StackGuest("disks-ubuntu", "noble", 1),
}
TESTERS = {
    "root": Tester("root", "root", "root"),
    "delegated": Tester("a user with delegation", "bench", "user"),
    "undelegated": Tester("a user without delegation", "bench", "user", _UNDELEGATE),
}


class StackHost(VmHost):
    """A guest with the programs that make stacks, and two disks for them."""

    def __init__(self, guest: StackGuest) -> None:
        cache = GuestCache.of_user(guest.cache)
        super().__init__(cache=cache, options=GuestOptions(guest.suite, guest.cpus))
        self._own_cache = cache

    def begin(self) -> None:
        """Start the guest with disks that hold nothing but an empty file system."""
        for name in (stacks.FIRST, stacks.SECOND):
            self._own_cache.disk(name).unlink(missing_ok=True)
        packages = tuple(Package(name, None) for name in stacks.PACKAGES)
        disks = (stacks.FIRST, stacks.SECOND)
        self.prepare(ResourceNeeds(0, 0, disks=disks, distribution_packages=packages), tell)
        self.start()

    def account(self, name: str) -> SshTarget:
        """Return an account of the guest, logged in to by a connection of its own."""
        return replace(self.target, user=name, control_path=None)


def measure(
    guest: str, testers: Iterable[str], names: Iterable[str], keep: Callable[[Any], None]
) -> None:
    """Make the stacks in a guest, test them as each user, and hand each finding to `keep`."""
    host = StackHost(GUESTS[guest])
    try:
        host.begin()
        tell("making the stacks")
        script = stacks.script(tuple(names))
        began = time.monotonic()
        done = run(ssh_argv(host.target, ["sh", "-s"]), input_text=script, timeout_seconds=400)
        tell(f"made in {time.monotonic() - began:.0f} s; {done.stdout.strip() or 'none failed'}")
        lines = (line.partition(": ") for line in done.stdout.splitlines())
        failed = {name: reason for name, _, reason in lines if name in stacks.BY_NAME}
        for tester in testers:
            for finding in _test(host, TESTERS[tester], tuple(names)):
                stack = Path(finding["directory"]).parent.name
                cell = {"guest": guest, "as": tester, "stack": stack, **finding}
                keep(cell | ({"not_made": failed[stack]} if stack in failed else {}))
    finally:
        host.stop()


def _test(host: StackHost, tester: Tester, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    run(ssh_argv(host.account("root"), ["sh", "-c", tester.prepare]), timeout_seconds=200)
    agent = make_agent_package(CHECKOUT).agent
    host.push([agent, Path(probe.__file__)], _SPOOL)
    run(host.command(["chmod", "-R", "a+rX", _SPOOL]))
    left = [f"{stacks.TOP}/{name}/{tester.word}" for name in names]
    words = f"PYTHONPATH={_SPOOL}/agent.pyz python3 {_SPOOL}/probe.py {tester.word}"
    argv = ["sh", "-c", f"{words} {' '.join(left)}"]
    process = spawn(ssh_argv(host.account(tester.account), argv), stdout=PIPE)
    try:
        for line in process.stdout or ():
            finding = json.loads(line)
            left.remove(finding["directory"])
            yield finding
    finally:
        process.terminate()
        status = process.wait()
    for directory in left:
        yield {"directory": directory, "failed": f"the probe ended with status {status}"}


def keep(cell: Mapping[str, Any], path: Path = RESULT) -> None:
    """Store a finding in place of an earlier one of the same guest, user and stack."""
    found = read_results(path, {"limits": dict(probe.LIMITS), "cells": []})
    key = ("guest", "as", "stack")
    others = [one for one in found["cells"] if any(one[name] != cell[name] for name in key)]
    found["cells"] = sorted([*others, {**cell, "code": code_of(path.name)}], key=_place)
    write_results(path, found, found["cells"])


def _place(cell: Mapping[str, Any]) -> tuple[int, ...]:
    orders = (list(GUESTS), list(TESTERS), list(stacks.BY_NAME))
    return tuple(
        order.index(cell[name])
        for order, name in zip(orders, ("guest", "as", "stack"), strict=True)
    )


def main(guests: list[str], testers: list[str], names: list[str]) -> None:
    """Measure and store; an empty list stands for all."""
    for guest in guests or GUESTS:
        measure(guest, testers or TESTERS, names or stacks.BY_NAME, keep)


if __name__ == "__main__":
    main(sys.argv[1:2], sys.argv[2:3], sys.argv[3:])
