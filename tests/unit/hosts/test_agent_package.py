"""The files copied to a host, for every architecture: nothing else is needed, and equal sources
give equal bytes.
"""

from __future__ import annotations

import io
import json
import platform
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.cli import doctor
from pagecage.errors import HostError, PagecageError
from pagecage.hosts.agent_package import (
    VARIABLE,
    agent_bytes,
    architecture,
    is_foreign_target,
    make_agent_package,
    require_programs,
    require_workloads,
)
from pagecage.hosts.host import Host, ResourceNeeds
from pagecage.hosts.local import LocalHost
from pagecage.hosts.vm import qemu
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.image import GuestImage, read_recipe
from pagecage.hosts.vm.qemu import Acceleration, machine_for, qemu_argv
from pagecage.model.cage import Cage
from pagecage.model.plan import Plan
from pagecage.model.trial import SetupStep
from pagecage.planning import host_choice
from pagecage.process import run
from pagecage.runner.images import ImageConfig, check_platform
from tests.builders.facts import FIT
from tests.builders.known import known
from tests.builders.programs import install
from tests.fake_host.machine import make_trial
from tests.tree import ROOT

# no site-packages, no PYTHONPATH: what a bare host offers
AGENT_PYTHON = [sys.executable, "-I", "-S"]


@pytest.fixture
def checkout_of(tmp_path: Path) -> Path:
    install(tmp_path / "build/host/bin/pcread", "#!/bin/sh\n")
    return tmp_path


def test_equal_sources_make_equal_bytes() -> None:
    assert agent_bytes() == agent_bytes()
    times = {entry.date_time for entry in zipfile.ZipFile(io.BytesIO(agent_bytes())).infolist()}
    assert times == {(1980, 1, 1, 0, 0, 0)}, "the hour of packing would name another agent"


def test_only_what_the_host_needs_travels() -> None:
    names = zipfile.ZipFile(io.BytesIO(agent_bytes())).namelist()
    assert "pagecage/agent/main.py" in names
    parts = {name.split("/")[1] for name in names if "/" in name}
    assert not parts & {"cli", "definitions", "hosts", "verdicts", "campaign.py"}


def test_the_agent_runs_on_a_bare_python(checkout_of: Path) -> None:
    package = make_agent_package(checkout_of)
    done = run([*AGENT_PYTHON, package.agent, "facts", checkout_of], env={"PATH": "/usr/bin:/bin"})
    facts = json.loads(done.stdout)
    assert facts["data_dir"] == str(checkout_of)
    assert facts["memory_bytes"] > 0
    assert facts["cpus"] >= 1


@pytest.mark.parametrize(("words", "status"), [([], 1), (["dance"], 2), (["facts"], 2)])
def test_a_wrong_word_is_answered_with_the_usage(
    checkout_of: Path, words: list[str], status: int
) -> None:
    package = make_agent_package(checkout_of)
    done = run([*AGENT_PYTHON, package.agent, *words], check=False)
    assert done.status == status
    assert done.stdout == ""


def test_the_hash_names_the_bytes(checkout_of: Path) -> None:
    package = make_agent_package(checkout_of)
    assert package.agent.read_bytes() == agent_bytes()
    assert len(package.agent_sha256) == 64
    assert [path.name for path in package.programs] == ["pcread"]


def test_an_agent_that_is_up_to_date_is_left_alone(checkout_of: Path) -> None:
    before = make_agent_package(checkout_of).agent.stat().st_mtime_ns
    assert make_agent_package(checkout_of).agent.stat().st_mtime_ns == before


def test_an_old_agent_is_replaced(checkout_of: Path) -> None:
    make_agent_package(checkout_of).agent.write_bytes(b"old")
    assert make_agent_package(checkout_of).agent.read_bytes() == agent_bytes()


def test_without_workloads_the_agent_travels_alone(tmp_path: Path) -> None:
    """A replay runs none but pcgen, and that for limits on I/O alone."""
    package = make_agent_package(tmp_path)
    assert (package.programs, package.agent.read_bytes()) == ((), agent_bytes())
    with pytest.raises(HostError, match="not built") as caught:
        require_workloads(package)
    assert caught.value.hint == "make build"


def test_a_workload_that_was_not_compiled_is_named(checkout_of: Path) -> None:
    """`make experiment` compiles what one experiment names; another may be run by hand."""
    package = make_agent_package(checkout_of)
    made = make_trial()
    workload = replace(made.workload, program="pcread", kind="handshake")
    read = replace(made, workload=workload, dataset=None, before=None)
    require_programs(package, [read])
    scan = replace(read, workload=replace(workload, program="pcscan"))
    with pytest.raises(HostError, match="pcscan is not built") as caught:
        require_programs(package, [read, scan])
    assert caught.value.hint == "make build"
    filled = replace(read, dataset=made.dataset, before=SetupStep("fill", ()))
    with pytest.raises(HostError, match="fill, pcgen are not built"):
        require_programs(package, [filled])
    grep = replace(read, workload=replace(read.workload, program="/usr/bin/grep", kind="command"))
    with pytest.raises(HostError, match="pcgen is not built"):
        require_programs(package, [grep])
    require_programs(package, [replace(grep, cage=Cage("memory", {"MemoryMax": 64 * 1024**2}))])


def launcher() -> str:
    """The Java workload's launcher as tools/build-workloads writes it where a jar was made."""
    script = (ROOT / "tools/build-workloads").read_text()
    [line] = [line for line in script.splitlines() if "there is no Java runtime here" in line]
    return line.strip().removeprefix("printf '%s\\n' ").removesuffix(" \\").strip("'")


def test_a_host_without_java_says_that_it_cannot(tmp_path: Path) -> None:
    done = run(["/bin/sh", "-c", launcher()], check=False, env={"PATH": str(tmp_path)})
    assert (done.status, done.stderr.strip()) == (77, "there is no Java runtime here")


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
    guest = machine_for(ResourceNeeds(0, 0), TCG)
    words = qemu_argv(guest, GuestImage(NOWHERE), NOWHERE, NOWHERE, NOWHERE)
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
    assert host_choice._plan_without_limits(LocalHost(None), no_plan) is None


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
    assert known(make_agent_package(tmp_path).volume_plugin).read_text() == "host"
