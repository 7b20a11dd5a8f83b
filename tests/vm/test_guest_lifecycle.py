"""Guests, locks and files after orderly and disorderly ends."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagecage.errors import HostDied, HostError, PagecageError
from pagecage.hosts.host import ResourceNeeds
from pagecage.hosts.vm import guest
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.guest_client import read_guest
from pagecage.hosts.vm.qemu import sockets_dir
from pagecage.hosts.vm.vm_host import VmHost
from pagecage.planning.host_choice import choose_host
from pagecage.process import PIPE, Process, is_alive, run, spawn
from pagecage.units import GIB
from tests.builders.known import known
from tests.builders.waiting import wait_until

pytestmark = pytest.mark.vm
NEED = ResourceNeeds(0, 0)
OWNER = """
import sys
from pagecage.hosts.host import ResourceNeeds
from pagecage.hosts.vm.vm_host import VmHost
host = VmHost()
host.prepare(ResourceNeeds(0, 0), lambda _: None)
host.start()
print("up", flush=True)
sys.stdin.read()
host.stop()
"""


@pytest.fixture
def host() -> Iterator[VmHost]:
    host = VmHost()
    yield host
    host.stop()


@pytest.fixture
def owner() -> Iterator[Process[bytes]]:
    """Another process that uses the guest."""
    process = spawn([sys.executable, "-c", OWNER], stdin=PIPE, stdout=PIPE)
    assert known(process.stdout).readline() == b"up\n"
    yield process
    process.kill()
    process.communicate()


def left_behind(cache: GuestCache) -> list[Path]:
    return [
        path
        for path in (sockets_dir(cache), cache.guest_file, *cache.scratch.glob("vl.*"))
        if path.exists()
    ]


def test_the_second_user_is_told_at_once(host: VmHost, owner: Process[bytes]) -> None:
    began = time.monotonic()
    uses: list[Callable[[], object]] = [
        lambda: host.prepare(NEED, print),
        lambda: guest.down(print),
    ]
    for use in uses:
        with pytest.raises(PagecageError, match=f"in use by process {owner.pid}"):
            use()
    assert time.monotonic() - began < 2
    assert guest.status().used_by_pid == owner.pid


def test_a_killed_owner_takes_its_guest_along_and_the_next_start_works(
    host: VmHost, owner: Process[bytes]
) -> None:
    record = known(read_guest(GuestCache.of_user()))
    owner.kill()
    owner.wait()
    wait_until(lambda: not is_alive(record.process_id), 5)
    host.prepare(NEED, print)
    assert host.start().restore_seq == record.restore_seq + 1
    assert run(host.command(["true"])).ok
    host.stop()
    assert left_behind(GuestCache.of_user()) == []


def test_a_guest_that_dies_is_noticed_and_comes_again(host: VmHost) -> None:
    host.prepare(NEED, print)
    host.start()
    host.check()
    record = known(read_guest(GuestCache.of_user()))
    os.kill(record.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(record.process_id), 60)
    with pytest.raises(HostDied):
        host.check()
    with pytest.raises(HostDied):
        host.push([Path(__file__)], host.spool_dir)
    assert host.outer_sample()["unix_seconds"] <= time.time()
    host.restart()
    assert run(host.command(["true"])).ok


def measures_in_it_and_leaves_it(qemu_pid: int | None) -> None:
    """A run uses the guest that is running, one run at a time, and refuses a plan that is too large
    for it.
    """
    printed: list[str] = []
    ours = choose_host("vm", None, printed.append)
    assert "the guest running since" in printed[0]
    with pytest.raises(HostError, match=r"memory of 2 GiB, but the plan needs 64 GiB"):
        ours.prepare(ResourceNeeds(64 * GIB, 0), print)
    ours.stop()
    ours.prepare(NEED, print)
    try:
        state = ours.start()
        assert (state.state_id, state.restore_seq) == (None, None)
        assert run(ours.command(["cat", "/proc/1/comm"])).stdout == "systemd\n"
        assert guest.status().used_by_pid == os.getpid()
        assert ours.restart().state_id is None
    finally:
        ours.stop()
    assert guest.status().qemu_pid == qemu_pid, "it stays up"


def test_up_stays_and_down_ends_it(host: VmHost) -> None:
    run([sys.executable, "-c", "from pagecage.hosts.vm import guest; guest.up(lambda _: None)"])
    try:
        state = guest.status()
        assert (state.running, state.kept, state.used_by_pid) == (True, True, None)
        guest.up(print)
        assert guest.status().qemu_pid == state.qemu_pid
        with pytest.raises(PagecageError, match="pagecage host down vm"):
            host.prepare(NEED, print)
        measures_in_it_and_leaves_it(state.qemu_pid)
    finally:
        guest.down(print)
    assert not guest.status().running
    assert left_behind(GuestCache.of_user()) == []


def test_a_shell_brings_its_guest_and_takes_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "from pagecage.hosts.vm import guest; raise SystemExit(guest.shell(lambda _: None))"
    done = run([sys.executable, "-c", script], input_text="cat /proc/1/comm; exit 3\n", check=False)
    assert (done.status, done.stdout) == (3, "systemd\n")
    assert left_behind(GuestCache.of_user()) == []


def borrow_image(cache: GuestCache) -> Path:
    """Return another cache with the user's image in it, which a test may damage."""
    host = VmHost()
    try:
        host.prepare(NEED, print)
    finally:
        host.stop()
    cache.make()
    newest = max(GuestCache.of_user().images.iterdir(), key=lambda path: path.stat().st_mtime)
    ours = cache.images / newest.name
    ours.mkdir()
    for path in newest.iterdir():
        (ours / path.name).symlink_to(path)
    return ours


@pytest.mark.long
def test_a_spoilt_state_is_made_again_once_and_it_is_said(tmp_path: Path) -> None:
    cache = GuestCache(tmp_path / "vm")
    borrow_image(cache)
    newest = max(GuestCache.of_user().states.iterdir(), key=lambda path: path.stat().st_mtime)
    shutil.copytree(newest, cache.states / newest.name)
    os.truncate(cache.states / newest.name / "memory.bin", 1_000_000)
    printed: list[str] = []
    host = VmHost(cache=cache)
    try:
        host.prepare(NEED, printed.append)
        host.start()
        assert run(host.command(["true"])).ok
    finally:
        host.stop()
    assert [text for text in printed if "did not start" in text]


@pytest.mark.long
def test_a_guest_that_does_not_boot_shows_its_console(tmp_path: Path) -> None:
    cache = GuestCache(tmp_path / "vm")
    disk = borrow_image(cache) / "root.img"
    disk.unlink()
    disk.touch()
    os.truncate(disk, 1 << 30)
    host = VmHost(cache=cache)
    try:
        says = r"(?s)did not boot.*console ends.*(panic|root).*pagecage host rebuild vm"
        with pytest.raises(HostError, match=says):
            host.prepare(NEED, print)
    finally:
        host.stop()
    assert not list(cache.states.glob("*[!t]"))
