"""The guest's machine, as a real QEMU builds it without starting its processors."""

from __future__ import annotations

import platform
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.errors import HostError
from pagecage.hosts.agent_package import ARCHITECTURES, VARIABLE, architecture
from pagecage.hosts.host import ResourceNeeds
from pagecage.hosts.vm import qemu
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.image import GuestImage
from pagecage.hosts.vm.qemu import (
    PORTS,
    Acceleration,
    GuestMachine,
    QmpClient,
    has_kvm_error,
    machine_for,
    make_sockets_dir,
    parse_forwarded_port,
    qemu_argv,
)
from pagecage.process import run, spawn
from pagecage.units import GIB, MIB

TCG = Acceleration("tcg", "max", "7.2.22")
MACHINE = GuestMachine("x86_64", 2 * GIB, 2, TCG)
USERNET = """Hub -1 (net):
  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ
  TCP[ESTABLISHED]   21       127.0.0.1 40017      10.0.2.15    22     0     0
  TCP[HOST_FORWARD]  13       127.0.0.1 40017      10.0.2.15    22     0     0
"""


def test_memory_follows_the_need_in_steps() -> None:
    assert machine_for(ResourceNeeds(0, 0), TCG).memory_bytes == 2 * GIB
    assert machine_for(ResourceNeeds(2 * GIB + 1, 0), TCG).memory_bytes == 2 * GIB + 256 * MIB
    assert machine_for(ResourceNeeds(10 * GIB, 0), TCG).memory_bytes == 10 * GIB


def test_a_guest_has_the_processors_that_it_is_made_with() -> None:
    assert machine_for(ResourceNeeds(0, 0), TCG).cpus == 2
    one = machine_for(ResourceNeeds(0, 0), TCG, 1)
    words = qemu_argv(one, GuestImage(Path("i")), Path("d"), Path("s"), Path("c"))
    assert words[words.index("-smp") + 1] == "1"


@pytest.mark.parametrize(
    "other",
    [
        replace(MACHINE, memory_bytes=3 * GIB),
        replace(MACHINE, cpus=3),
        replace(MACHINE, arch="aarch64"),
        replace(MACHINE, acceleration=replace(TCG, accel="kvm")),
        replace(MACHINE, acceleration=replace(TCG, cpu="qemu64")),
        replace(MACHINE, acceleration=replace(TCG, qemu_version="10.0.3")),
    ],
)
def test_a_saved_state_fits_one_machine_only(other: GuestMachine) -> None:
    assert other.key_parts() != MACHINE.key_parts()
    assert replace(MACHINE).key_parts() == MACHINE.key_parts()


def argv() -> list[str]:
    disk = Path("/d,2/disk.qcow2")
    return qemu_argv(MACHINE, GuestImage(Path("/i,1")), disk, Path("/s"), Path("/c"))


def test_the_guest_reaches_nothing_and_is_reached_on_loopback_only() -> None:
    (net,) = [word for word in argv() if word.startswith("user,")]
    assert "restrict=on" in net.split(",")
    forwarded = [part for part in net.split(",") if part.startswith("hostfwd=")]
    assert forwarded == ["hostfwd=tcp:127.0.0.1:0-:22"]


def test_sockets_are_in_a_directory_of_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = GuestCache(tmp_path)
    monkeypatch.setattr(qemu, "sockets_dir", lambda _: tmp_path / "sockets")
    for _ in range(2):
        made = make_sockets_dir(cache)
        assert made.stat().st_mode & 0o777 == 0o700
        (made / "left").touch()
    sockets = [word for word in argv() if "/s/" in word]
    assert {word.partition(",")[0] for word in sockets} == {"socket", "unix:/s/qmp"}
    assert not [word for word in argv() if word.startswith(("tcp:", "telnet:", "websocket:"))]


def test_sockets_do_not_go_where_another_user_was_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's directory in /tmp cannot be removed; neither is a file removed as a tree."""
    (tmp_path / "sockets").touch()
    monkeypatch.setattr(qemu, "sockets_dir", lambda _: tmp_path / "sockets")
    with pytest.raises(HostError, match="belongs to another user"):
        make_sockets_dir(GuestCache(tmp_path))


def test_a_comma_in_a_path_is_no_option() -> None:
    assert any(word.startswith("file=/d,,2/disk.qcow2,format=qcow2,") for word in argv())


def test_the_forwarded_port_is_the_one_that_was_bound() -> None:
    assert parse_forwarded_port(USERNET) == 40017
    with pytest.raises(HostError, match="forwards no port"):
        parse_forwarded_port(USERNET.replace("HOST_FORWARD", "SYN_SENT"))


@pytest.mark.parametrize(
    ("stderr", "no_use"),
    [
        ("qemu-system-x86_64: error: failed to set MSR 0x10a to 0x0\n", True),
        ("KVM internal error. Suberror: 1\n", True),
        ("warning: host doesn't support requested feature\n", False),
        ("", False),
    ],
)
def test_a_kvm_that_says_no_is_not_waited_for(stderr: str, no_use: bool) -> None:
    assert has_kvm_error(stderr) is no_use


BYTES = 1 << 20
OTHERS = [
    pytest.param(name, marks=[] if name == platform.machine() else pytest.mark.long)
    for name in ARCHITECTURES
]


@pytest.mark.parametrize("name", OTHERS)
def test_qemu_has_every_device_of_the_guest(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, name)
    program = architecture().qemu
    assert shutil.which(program), f"there is no {program}: make test-long installs it"
    image, disk, errors = GuestImage(tmp_path), tmp_path / "disk.qcow2", tmp_path / "errors"
    run(["qemu-img", "create", "-q", "-f", "qcow2", disk, str(BYTES)])
    machine = machine_for(ResourceNeeds(0, 0), Acceleration("tcg", "max", ""))
    argv = qemu_argv(machine, image, disk, tmp_path, tmp_path / "console")
    start = argv.index("-kernel")
    del argv[start : argv.index("-append") + 2]  # x86-64 loads a kernel only if it is one
    with errors.open("wb") as output:
        process = spawn(argv, stderr=output)
    monitor = QmpClient(tmp_path / "qmp")
    try:
        assert monitor.connect(60), errors.read_text()
        assert monitor.status() == "prelaunch"
        ports = [one["qdev_id"] for bus in monitor.execute("query-pci") for one in bus["devices"]]
        assert set(PORTS) <= set(ports)
        assert monitor.forwarded_port() > 0
    finally:
        monitor.close()
        process.kill()
        process.wait()
