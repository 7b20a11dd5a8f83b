"""Units, containers and processes as targets, and machines that hide some of the evidence."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pagecage.errors import EXIT_HOST, EXIT_USAGE, PagecageError
from pagecage.verify import target
from pagecage.verify.target import Subject
from pagecage.verify.verification import Verification, verify
from tests.builders.verified import CONTAINER_ID, EVERY_HIERARCHY, SLICE, VerifiedMachine

UNIT = f"{SLICE}/web.service"
SCOPE = f"{SLICE}/docker-{CONTAINER_ID}.scope"
GIB = 1024**3
PID = 4242


def states(found: Verification) -> dict[str, str]:
    return {one.requested.name: one.state for one in found.comparisons}


def verify_unit(machine: VerifiedMachine, name: str = "web.service") -> Verification:
    return verify(Subject(unit=name), 0, machine.kernel)


@EVERY_HIERARCHY
def test_a_process_in_a_container_brings_the_containers_limits(machine: VerifiedMachine) -> None:
    machine.cgroup(SCOPE, (PID,))
    machine.container(PID, Memory=GIB)
    found = verify(Subject(pid=PID), 0, machine.kernel)
    assert states(found) == {"MemoryMax": "lost", "MemorySwapMax": "lost"}
    assert found.target.description == f"process {PID} (postgres)"


def test_a_container_that_the_engine_hides_is_a_note(machine: VerifiedMachine) -> None:
    machine.cgroup(SCOPE, (PID,))
    machine.answer(
        "docker",
        f"{CONTAINER_ID}.fails",
        "permission denied while trying to connect to the Docker daemon socket\n",
    )
    found = verify(Subject(pid=PID), 0, machine.kernel)
    [note] = found.notes
    assert note == (
        f"What the container {CONTAINER_ID[:12]} was given is unknown: Docker does not answer:"
        " permission denied while trying to connect to the Docker daemon socket."
    )


@EVERY_HIERARCHY
def test_units_of_ones_own_systemd(machine: VerifiedMachine) -> None:
    path = f"user.slice/user@{os.getuid()}.service/app.slice/web.service"
    machine.cgroup(path, (PID,))
    machine.unit(path, user=True, MemoryMax="4096")
    # The manager itself answers for its units by the last word.
    machine.answer("systemctl", "app.slice", "")
    found = verify(Subject(unit="web.service", user=True), 0, machine.kernel)
    assert found.target.directory == machine.mount / path


def test_units_of_another_users_systemd_are_a_note(machine: VerifiedMachine) -> None:
    path = "user.slice/user@99999.service/app.slice/web.service"
    machine.cgroup(path, (PID,))
    found = verify(Subject(pid=PID), 0, machine.kernel)
    assert found.notes == (
        "The units of user 99999's own systemd were not asked; that user may ask.",
    )


def test_a_cgroup_namespace_is_a_note(machine: VerifiedMachine) -> None:
    namespace = machine.kernel.proc / "self/ns/cgroup"
    namespace.unlink()
    namespace.symlink_to("cgroup:[4026532999]")
    machine.cgroup("", memory__max=str(GIB))
    machine.process(PID, "/")
    found = verify(Subject(pid=PID), 0, machine.kernel)
    assert [limit.name for limit in found.effective] == ["MemoryMax"]
    [note] = found.notes
    assert note.startswith("This process is in a cgroup namespace: limits of the cgroups above")


def test_a_containers_own_limits_are_those_of_its_mount_point(machine: VerifiedMachine) -> None:
    machine.cgroup("", memory__max=str(GIB))
    machine.cgroup("init.scope", (PID,))
    found = verify(Subject(pid=PID), 0, machine.kernel)
    assert [(one.name, one.file) for one in found.effective] == [
        ("MemoryMax", machine.mount / "memory.max")
    ]


def test_a_kernel_without_pressure_is_a_note(machine: VerifiedMachine) -> None:
    (machine.cgroup(UNIT, (PID,)) / "io.pressure").unlink()
    machine.unit(UNIT)
    [note] = verify_unit(machine).notes
    assert "psi=1" in note


def refusal(machine: VerifiedMachine, subject: Subject) -> PagecageError:
    with pytest.raises(PagecageError) as caught:
        verify(subject, 0, machine.kernel)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("subject", "says"),
    [
        (Subject(), "none was given"),
        (Subject(unit="a", pid=1), "several was given"),
        (Subject(pid=1, user=True), "--user applies only to --unit"),
        (Subject(unit=""), "--unit: '' is not a valid name"),
        (Subject(unit="a*"), "is not a valid name"),
        (Subject(container="a/b"), "--container: 'a/b' is not a valid name"),
        (Subject(pid=77), "there is no process 77"),
        (Subject(unit="nope.service"), "there is no unit 'nope.service'; a unit of your own"),
        (Subject(unit="nope", user=True), "there is no unit 'nope'"),
        (Subject(container="nope"), "there is no container 'nope'"),
    ],
)
def test_a_target_that_does_not_exist(
    machine: VerifiedMachine, subject: Subject, says: str
) -> None:
    found = refusal(machine, subject)
    assert says in found.message
    assert found.exit_code == EXIT_USAGE


def test_an_inactive_unit(machine: VerifiedMachine) -> None:
    machine.answer(
        "systemctl", "web.service", "Id=web.service\nLoadState=loaded\nActiveState=failed\n"
    )
    found = refusal(machine, Subject(unit="web.service"))
    assert found.message == (
        "the unit web.service is failed and has no cgroup, so no limit is in force"
    )


def test_a_stopped_container(machine: VerifiedMachine) -> None:
    machine.container(0)
    found = refusal(machine, Subject(container="orders-db"))
    assert found.message == "the container 'orders-db' is not running"


@pytest.mark.parametrize(
    "answer", ["", "{", "[]", "5", '[{"State": 5}]', '[{"State": {"Pid": []}}]']
)
def test_an_engine_that_answers_something_else(machine: VerifiedMachine, answer: str) -> None:
    machine.answer("docker", "odd", answer)
    assert "printed no description" in refusal(machine, Subject(container="odd")).message


@pytest.mark.parametrize(
    "config",
    [
        {"Memory": "much"},
        {"NanoCpus": [1]},
        {"BlkioDeviceReadBps": [{"Path": "/dev/vdb", "Rate": "z"}]},
    ],
)
def test_limits_of_another_kind(machine: VerifiedMachine, config: dict[str, Any]) -> None:
    machine.cgroup(SCOPE, (PID,))
    machine.container(PID, **config)
    found = verify(Subject(container="orders-db"), 0, machine.kernel)
    assert "cannot be read" in found.notes[0]


def test_a_machine_without_controllers_is_refused(machine: VerifiedMachine) -> None:
    (machine.mount / "cgroup.controllers").write_text("hugetlb\n")
    found = refusal(machine, Subject(pid=PID))
    assert found.exit_code == EXIT_HOST
    assert found.message.startswith("no cgroup hierarchy with the controllers memory and io is")


def test_a_missing_controller_is_a_note(machine: VerifiedMachine) -> None:
    (machine.mount / "cgroup.controllers").write_text("cpu memory\n")
    machine.cgroup(UNIT, (PID,))
    assert verify(Subject(pid=PID), 0, machine.kernel).notes == (
        "No hierarchy that is mounted here has the controller io.",
    )


@EVERY_HIERARCHY
def test_a_zombie_has_ended(machine: VerifiedMachine) -> None:
    machine.cgroup(UNIT, (PID,))
    stat = machine.kernel.proc / f"{PID}/stat"
    stat.write_text(stat.read_text().replace(") S ", ") Z "))
    assert f"there is no process {PID}" in refusal(machine, Subject(pid=PID)).message


@EVERY_HIERARCHY
def test_a_process_outside_of_the_namespace(machine: VerifiedMachine) -> None:
    """A directory beside the mount point is not its cgroup."""
    machine.process(PID, "/../other")
    (machine.root / "other").mkdir()
    assert "outside of this cgroup namespace" in refusal(machine, Subject(pid=PID)).message


def test_without_the_tools_a_process_can_still_be_named(
    machine: VerifiedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (target, target):
        monkeypatch.setattr(module, "find_tool", lambda _: None)
    assert refusal(machine, Subject(container="a")).hint == "name a process: --pid N"
    assert refusal(machine, Subject(unit="a")).hint == "name a process: --pid N"
