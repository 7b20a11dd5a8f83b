"""`pagecage doctor`: requirements that this machine meets or misses.

They are those of host local and of the vm.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pagecage.agent.collectors.damon import refusal
from pagecage.agent.collectors.perf_mem import find_obstacle
from pagecage.agent.facts import tracing_obstacle
from pagecage.cli.failures import fix_here
from pagecage.cli.host_choice import limits_by
from pagecage.cli.options import Folder
from pagecage.cli.output import Json
from pagecage.errors import EXIT_HOST, EXIT_OK
from pagecage.hosts.agent_package import ARCHITECTURES, target_machine
from pagecage.hosts.local import LocalHost
from pagecage.model.cage import IO_MAX_KEY, Cage
from pagecage.model.requirements import (
    check_disk,
    check_hierarchy,
    check_host,
    check_limits,
    default_driver,
)
from pagecage.model.trial import CGROUPFS
from pagecage.process import find_tool

_VM_TOOLS = {
    "mmdebstrap": "builds the guest's root file system",
    "mke2fs": "makes the guest's disks",
    "ssh": "connects to the guest",
}
_WRITES = [name for name in IO_MAX_KEY if "Write" in name]
_COLLECTORS = ("iostat", "sar", "vmtouch", "bpftrace", "fio")


@dataclass(frozen=True)
class DoctorFinding:
    """One line of the diagnosis.

    `level` is ok, missing (the host cannot be used), partial (the host serves only treatments
    without limits) or lesser (the host works with one collector or figure less).
    """

    host: str
    what: str
    level: str
    detail: str
    hint: str = ""


def examine(data_dir: Path | None) -> list[DoctorFinding]:
    """Return all findings, the most important first."""
    facts = LocalHost(data_dir).facts()
    return [*_local(facts), *_collectors(facts), *_vm()]


def _local(facts: dict[str, Any]) -> Iterator[DoctorFinding]:
    for level, missed in (("missing", check_disk(facts)), ("partial", check_limits(facts))):
        for miss in missed:
            yield DoctorFinding("local", miss.requirement.value, level, miss.reason, miss.hint)
    if not check_host(facts):
        detail = f"{limits_by(facts)} can limit memory and I/O on {facts['disk']['node']}"
        yield DoctorFinding("local", "limits", "ok", detail)
        yield from _hierarchy(facts)
    if facts["disk"].get("has_cgroup_writeback") is False:
        detail = (
            f"limits on writes are refused: {facts['disk']['mount_point']} is"
            f" {facts['disk']['filesystem']} with writeback outside of the trial's cgroup"
        )
        hint = "name a --data-dir on ext4 (without data=journal), XFS or btrfs"
        yield DoctorFinding("local", "writeback", "lesser", detail, hint)
    if not facts["psi"]:
        hint = "boot with psi=1"
        yield DoctorFinding(
            "local", "psi", "lesser", "no pressure counters: the binding limit stays unknown", hint
        )
    method = "cachestat" if facts["cachestat"] else "mincore"
    yield DoctorFinding("local", "residency", "ok", f"measured by {method}")


def _hierarchy(facts: dict[str, Any]) -> Iterator[DoctorFinding]:
    """Yield what the controllers of cgroup v1 cannot limit, where they hold the limits."""
    if default_driver(facts) != CGROUPFS:
        return
    for cage in (Cage("", {"MemoryHigh": 0}), Cage("", dict.fromkeys(_WRITES, 0))):
        for missed in check_hierarchy(facts, cage):
            yield DoctorFinding("local", "cgroup v1", "lesser", missed.reason, missed.hint)


def _collectors(facts: dict[str, Any]) -> Iterator[DoctorFinding]:
    for name in _COLLECTORS:
        version = facts["tools"].get(name)
        if not version:
            yield DoctorFinding("local", name, "lesser", "not installed", "make setup HOST=local")
        elif name == "bpftrace":
            yield _bpftrace(version, facts)
        else:
            yield DoctorFinding("local", name, "ok", version)
    for name, reason in (("perf-mem", find_obstacle()), ("damon", refusal())):
        level, detail = ("lesser", reason) if reason else ("ok", "can be used")
        yield DoctorFinding("local", name, level, detail)


def _bpftrace(version: str, facts: dict[str, Any]) -> DoctorFinding:
    """Return whether bpftrace can trace, and by which probes."""
    able = facts["tracing"]
    if obstacle := tracing_obstacle(able, facts["uid"]):
        detail, hint = obstacle
        return DoctorFinding("local", "bpftrace", "lesser", f"{version}: {detail}", hint)
    kinds = ["tracepoints"]
    kinds += ["kprobes"] if able["kprobes"] and able["btf"] else []
    kinds += ["fentry if the kernel allows it"] if able["btf"] else []
    mounted = "" if able["tracefs"] == "mounted" else "; each run mounts tracefs and unmounts it"
    return DoctorFinding("local", "bpftrace", "ok", f"{version}: {', '.join(kinds)}{mounted}")


def _vm() -> Iterator[DoctorFinding]:
    known = ARCHITECTURES.get(target_machine())
    if known is None:
        detail = f"there is no guest for {target_machine()}"
        yield DoctorFinding("vm", "architecture", "missing", detail, "use HOST=local")
        return
    for tool, purpose in {known.qemu: "runs the guest", **_VM_TOOLS}.items():
        if find_tool(tool):
            yield DoctorFinding("vm", tool, "ok", purpose)
        else:
            yield DoctorFinding(
                "vm", tool, "missing", f"{tool} is not installed ({purpose})", "make setup"
            )
    if not known.is_native:
        detail = f"not used: the guest is {known.machine}, so it is emulated (slow CPU)"
        yield DoctorFinding("vm", "/dev/kvm", "lesser", detail)
        return
    kvm = Path("/dev/kvm").exists()
    detail = (
        "present; a test boot shows whether it works"
        if kvm
        else "absent: the guest is emulated (slow CPU)"
    )
    yield DoctorFinding("vm", "/dev/kvm", "ok" if kvm else "lesser", detail)


def lines(findings: list[DoctorFinding]) -> Iterator[str]:
    """Yield the diagnosis for a terminal: one line per finding, followed by its fix."""
    for finding, following in zip_longest(findings, findings[1:]):
        yield f"{finding.level:<8} {finding.host:<6} {finding.what:<20} {finding.detail}"
        if finding.hint and not (following and following.hint == finding.hint):
            yield f"{'':<36} fix: {fix_here(finding.hint)}"
    for host in ("local", "vm"):
        yield f"HOST={host}: {_conclusion([f for f in findings if f.host == host])}"


def _conclusion(findings: list[DoctorFinding]) -> str:
    for level, words in (
        ("missing", "cannot be used"),
        ("partial", "can be used for treatments without limits only"),
    ):
        if found := [finding for finding in findings if finding.level == level]:
            return f"{words}: {found[0].detail}"
    return "can be used"


def doctor(*, data_dir: Folder | None = None, as_json: Json = False) -> int:
    """Check what this machine has and lacks for measuring.

    The exit status is 3 if neither host local nor host vm can be used.

    Parameters
    ----------
    data_dir
        Directory on the disk to measure
    """
    findings = examine(data_dir)
    if as_json:
        print(json.dumps([vars(one) | {"hint": fix_here(one.hint)} for one in findings]))
    else:
        print("\n".join(lines(findings)))
    hosts = {f.host for f in findings} - {f.host for f in findings if f.level == "missing"}
    return EXIT_OK if hosts else EXIT_HOST
