"""Guests, programs and packages for both architectures, on machines of both."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from pagecage.cli import doctor, host_choice
from pagecage.errors import HostError, PagecageError
from pagecage.hosts.agent_package import (
    VARIABLE,
    architecture,
    is_foreign_target,
    make_agent_package,
)
from pagecage.hosts.host import Host, ResourceNeeds
from pagecage.hosts.local import LocalHost
from pagecage.hosts.vm import qemu
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.image import GuestImage, read_recipe
from pagecage.hosts.vm.qemu import Acceleration, machine_for, qemu_argv
from pagecage.planning.plan import Plan
from pagecage.runner.images import ImageConfig, check_platform
from tests.builders.facts import FIT

MACHINES = ("x86_64", "aarch64")
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
TCG = Acceleration("tcg", "max", "7.2.22")
NOWHERE = Path("nowhere")
FACTS = {**FIT, "psi": True, "cachestat": True, "tools": {}, "disk": {"node": "/dev/vdb"}}


def no_plan(host: Host) -> Plan:
    raise AssertionError(f"a plan was made for {host.name}")


@pytest.fixture(params=MACHINES)
def here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """This machine's architecture."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(platform, "machine", lambda: request.param)
    return str(request.param)


@pytest.fixture(params=(False, True), ids=("own", "other"))
def hosts(request: pytest.FixtureRequest, here: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The hosts' architecture: this machine's, or the other by PAGECAGE_MACHINE."""
    if not request.param:
        return here
    (other,) = set(MACHINES) - {here}
    monkeypatch.setenv(VARIABLE, other)
    return other


def test_the_guest_is_of_the_hosts_architecture(hosts: str, checkout: Path) -> None:
    recipe, guest = read_recipe(checkout), machine_for(ResourceNeeds(0, 0), TCG)
    assert recipe.arch == DEBIAN[hosts]
    assert f"linux-image-cloud-{DEBIAN[hosts]}" in recipe.packages
    words = qemu_argv(guest, GuestImage(NOWHERE), NOWHERE, NOWHERE, NOWHERE)
    assert words[0] == f"qemu-system-{hosts}"
    console = {"x86_64": "console=ttyS0", "aarch64": "console=ttyAMA0"}[hosts]
    assert console in words[words.index("-append") + 1].split()
    assert guest.machine_type == {"x86_64": "q35", "aarch64": "virt"}[hosts]


def test_an_arm_guest_has_the_interrupt_controller_of_its_host(hosts: str) -> None:
    words = qemu_argv(
        machine_for(ResourceNeeds(0, 0), TCG), GuestImage(NOWHERE), NOWHERE, NOWHERE, NOWHERE
    )
    board = words[words.index("-machine") + 1].split(",")
    assert ("gic-version=max" in board) is (hosts == "aarch64")


def test_the_trial_boot_prints_to_the_console_of_its_architecture(hosts: str) -> None:
    words = qemu.trial_argv(GuestImage(NOWHERE), NOWHERE, architecture())
    line = words[words.index("-append") + 1]
    assert ("earlycon" in line.split()) is (hosts == "aarch64")
    assert ("earlyprintk=serial,ttyS0" in line.split()) is (hosts == "x86_64")


def test_a_guest_of_the_other_architecture_is_emulated_without_a_trial_boot(
    here: str, hosts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A /dev/kvm that opens serves only guests of this machine's architecture."""
    kvm = tmp_path / "kvm"
    kvm.touch()
    monkeypatch.setattr(qemu, "KVM_DEVICE", kvm)
    monkeypatch.setattr(qemu, "qemu_version", lambda program: "7.2.22")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = GuestCache.of_user()
    cache.make()
    known = qemu.known_acceleration(cache)
    assert (known == TCG) is (here != hosts)


def test_programs_of_each_architecture_have_a_folder(here: str, hosts: str, tmp_path: Path) -> None:
    for folder in ("host", *MACHINES):
        (tmp_path / "build" / folder / "bin").mkdir(parents=True)
        (tmp_path / "build" / folder / "bin/pcgen").write_text(folder)
    (program,) = make_agent_package(tmp_path).programs
    assert program.read_text() == ("host" if here == hosts else hosts)


def test_this_machine_runs_no_programs_of_the_other(here: str, hosts: str) -> None:
    assert is_foreign_target() is (here != hosts)
    if here == hosts:
        assert host_choice.choose_host("local", None, print).name == "local"
        return
    with pytest.raises(HostError, match=f"{VARIABLE} is {hosts}, and this machine is {here}"):
        host_choice.choose_host("local", None, print)
    assert host_choice.choose_host("auto", None, print).name == "vm"
    assert host_choice.plan_without_limits(LocalHost(None), no_plan) is None


def test_an_image_must_be_of_the_hosts_architecture(hosts: str) -> None:
    for name in DEBIAN.values():
        config = ImageConfig("sha256:0", name, "linux", (), (), 0)
        if name == DEBIAN[hosts]:
            check_platform(config, "own:1")
        else:
            with pytest.raises(PagecageError, match=f"and the host is linux/{DEBIAN[hosts]}"):
                check_platform(config, "own:1")


def test_the_doctor_names_the_qemu_of_the_guest(
    here: str, hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalHost, "facts", lambda _: FACTS)
    monkeypatch.setattr(doctor, "find_tool", lambda name: None)
    found = {finding.what: finding for finding in doctor.examine(None) if finding.host == "vm"}
    assert {name for name in found if name.startswith("qemu")} == {f"qemu-system-{hosts}"}
    assert ("so it is emulated" in found["/dev/kvm"].detail) is (here != hosts)


@pytest.mark.parametrize("name", ["arm64", "riscv64", "x86-64"])
def test_an_architecture_without_a_guest_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, name)
    with pytest.raises(HostError, match=f"no guest for {name}"):
        make_agent_package(tmp_path)
    monkeypatch.setattr(LocalHost, "facts", lambda _: FACTS)
    (finding,) = (one for one in doctor.examine(None) if one.host == "vm")
    assert (finding.level, finding.what) == ("missing", "architecture")


def test_the_plugin_of_volumes_is_this_machines(here: str, hosts: str, tmp_path: Path) -> None:
    """nbdkit serves a guest's disks on the machine that runs QEMU."""
    for folder in ("host", *MACHINES):
        (tmp_path / "build" / folder / "lib").mkdir(parents=True)
        (tmp_path / "build" / folder / "lib/libpcvolume.so").write_text(folder)
    plugin = make_agent_package(tmp_path).volume_plugin
    assert plugin is not None
    assert plugin.read_text() == "host"
