"""Missing requirements, each with its reason and its fix."""

from __future__ import annotations

from typing import Any

import pytest

from pagecage.model.cage import Cage
from pagecage.model.requirements import Requirement, check_host, check_trial, delegation_command
from pagecage.model.trial import Trial, Workload
from pagecage.process import run
from tests.builders.facts import FIT, NO_MANAGER, USER, facts
from tests.tree import ROOT


def trial(read_ahead_kb: int | None = None, min_memory_bytes: int = 0, **properties: int) -> Trial:
    workload = Workload("pcread", (), min_memory_bytes=min_memory_bytes)
    return Trial(
        "r1", "test", {}, 1, 1, 0, workload, Cage("c", properties), read_ahead_kb=read_ahead_kb
    )


def test_a_fit_host_lacks_nothing() -> None:
    assert check_host(FIT) == []
    assert check_trial(FIT, trial(128, 4096, MemoryMax=4096, CPUQuota=50)) == []


@pytest.mark.parametrize(
    ("changes", "requirement", "word"),
    [
        ({"systemd": {"pid1": False}}, Requirement.SYSTEMD_PID1, "first process"),
        ({"systemd": {"version": 243}}, Requirement.SYSTEMD_VERSION, "243"),
        ({"cgroup": {"v2": False}}, Requirement.CGROUP_V2, "unified"),
        ({"cgroup": {"controllers": ["cpu", "memory"]}}, Requirement.IO_CONTROLLER, "io con"),
        ({"cgroup": {"controllers": ["cpu", "io"]}}, Requirement.MEMORY_CONTROLLER, "memory con"),
        ({"disk": {"error": "/data is on overlay"}}, Requirement.LOCAL_DISK, "overlay"),
    ],
)
def test_each_missing_requirement_of_a_host(
    changes: dict[str, Any], requirement: Requirement, word: str
) -> None:
    [missed] = check_host(facts(**changes))
    assert missed.requirement is requirement
    assert word in missed.reason
    assert missed.hint
    told = {"reason": missed.reason, "hint": missed.hint}
    assert missed.to_json() == {"requirement": requirement.value, **told}


def test_all_missing_requirements_are_reported_together() -> None:
    systemd, cgroup = {"pid1": False, "version": 0}, {"v2": False, "controllers": []}
    bare = facts(systemd=systemd, cgroup=cgroup, disk={"error": "no"})
    assert [missed.requirement for missed in check_host(bare)] == [
        Requirement.SYSTEMD_PID1,
        Requirement.CGROUP_V2,
        Requirement.MEMORY_CONTROLLER,
        Requirement.IO_CONTROLLER,
        Requirement.LOCAL_DISK,
    ]


def test_a_user_without_io_gets_a_delegation_hint() -> None:
    [missed] = check_host(USER)
    assert missed.requirement is Requirement.IO_CONTROLLER
    assert missed.reason == "the io controller is not available to this user's systemd"
    assert missed.hint.startswith("use HOST=vm, which needs no delegation, or ")
    assert missed.hint.endswith(f": {delegation_command(1000)}")
    assert missed.hint.endswith("sudo systemctl restart user@1000.service")
    assert check_host({**USER, "cgroup": FIT["cgroup"]}) == []


def test_a_missing_user_manager_is_the_only_reason() -> None:
    [missed] = check_host(NO_MANAGER)
    assert missed.requirement is Requirement.USER_MANAGER
    assert missed.reason == "this user's own systemd (user@1000.service) is not running"
    assert missed.hint.startswith("use HOST=vm, which does not need it, or start it: ")
    assert missed.hint.endswith("sudo loginctl enable-linger 1000")
    without_systemd = {**NO_MANAGER, "systemd": {**NO_MANAGER["systemd"], "pid1": False}}
    found = [missed.requirement for missed in check_host(without_systemd)]
    assert Requirement.USER_MANAGER not in found


def test_root_gets_no_delegation_hint() -> None:
    missed = check_host(facts(cgroup={"controllers": []}))
    hints = ["use HOST=vm, or boot with cgroup_enable=memory", "use HOST=vm"]
    assert [each.hint for each in missed] == hints


def test_the_command_installs_what_provisioning_does() -> None:
    """The part before `sudo install` is run by a shell, and compared with its destination."""
    command = delegation_command(1000)
    written = run(["sh", "-c", command.split(" | ")[0]]).stdout
    kept = (ROOT / "cgroups/50-pagecage-delegation.conf").read_text().splitlines()
    assert written.splitlines() == [line for line in kept if not line.startswith("#")]
    target = command.split(" /dev/stdin ")[1].split()[0]
    assert f"dest: {target}\n" in (ROOT / "ansible/roles/delegation/vars/main.yml").read_text()


def test_a_quota_needs_the_cpu_controller() -> None:
    host = facts(cgroup={"controllers": ["io", "memory"]})
    assert check_trial(host, trial()) == []
    [missed] = check_trial(host, trial(CPUQuota=50))
    assert missed.requirement is Requirement.CPU_CONTROLLER


@pytest.mark.parametrize(
    ("uid", "wanted", "met"), [(0, 128, True), (1000, 256, True), (1000, 128, False)]
)
def test_only_root_changes_the_read_ahead(uid: int, wanted: int, met: bool) -> None:
    missed = check_trial(facts(uid=uid), trial(wanted))
    assert (missed == []) is met
    if not met:
        assert missed[0].requirement is Requirement.QUEUE_SETTINGS
        assert "tee /sys/block/vdb/queue/read_ahead_kb" in missed[0].hint


@pytest.mark.parametrize(("limit", "met"), [(4095, False), (4096, True)])
def test_a_cage_below_what_the_workload_needs(limit: int, met: bool) -> None:
    missed = check_trial(FIT, trial(None, 4096, MemoryMax=limit))
    assert [m.requirement for m in missed] == ([] if met else [Requirement.WORKLOAD_MEMORY])
