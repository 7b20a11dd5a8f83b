"""`pagecage doctor`: requirements of host local and of the vm that this machine meets or misses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from pagecage.agent.collectors.damon import refusal
from pagecage.agent.collectors.perf_mem import find_obstacle
from pagecage.agent.facts import tracing_obstacle
from pagecage.cli.failures import fix_here
from pagecage.cli.output import Json
from pagecage.errors import EXIT_HOST, EXIT_OK
from pagecage.hosts.agent_package import ARCHITECTURES, target_machine
from pagecage.hosts.local import LocalHost
from pagecage.linux.procfs import idle_pageout_seconds
from pagecage.model.cage import IO_MAX_KEY, Cage
from pagecage.model.record_sections import Row
from pagecage.model.requirements import (
    check_disk,
    check_hierarchy,
    check_host,
    check_limits,
    default_driver,
)
from pagecage.model.trial import CGROUPFS
from pagecage.planning.host_choice import limits_by
from pagecage.planning.options import Folder
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
    facts = LocalHost(data_dir).facts()
    return [*_local(facts), *_collectors(facts), *_vm()]


def _local(facts: Row) -> Iterator[DoctorFinding]:
    for level, missed in (("missing", check_disk(facts)), ("partial", check_limits(facts))):
        for miss in missed:
            yield DoctorFinding("local", miss.requirement.value, level, miss.reason, miss.hint)
    disk = facts["disk"]
    if not check_host(facts):
        detail = f"{limits_by(facts)} can limit memory and I/O on {disk['node']}"
        yield DoctorFinding("local", "limits", "ok", detail)
        if default_driver(facts) == CGROUPFS:
            for cage in (Cage("", {"MemoryHigh": 0}), Cage("", dict.fromkeys(_WRITES, 0))):
                for miss in check_hierarchy(facts, cage):
                    yield DoctorFinding("local", "cgroup v1", "lesser", miss.reason, miss.hint)
    if disk.get("has_cgroup_writeback") is False:
        detail = (
            f"limits on writes are refused: {disk['mount_point']} is {disk['filesystem']} with"
            " writeback outside of the trial's cgroup"
        )
        hint = "name a --data-dir on ext4 (without data=journal), XFS or btrfs"
        yield DoctorFinding("local", "writeback", "lesser", detail, hint)
    if not facts["psi"]:
        detail = "no pressure counters: the binding limit stays unknown"
        yield DoctorFinding("local", "psi", "lesser", detail, "boot with psi=1")
    if idle_seconds := idle_pageout_seconds():
        detail = f"DAMON reclaims pages that are not accessed for {idle_seconds:g} s: longer trials"
        detail += " may read them again, and are excluded then"
        hint = "for f in /sys/kernel/mm/damon/admin/kdamonds/*/state; do echo off >$f; done"
        yield DoctorFinding("local", "page cache", "lesser", detail, hint)
    method = "cachestat" if facts["cachestat"] else "mincore"
    yield DoctorFinding("local", "residency", "ok", f"measured by {method}")


def _collectors(facts: Row) -> Iterator[DoctorFinding]:
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


def _bpftrace(version: str, facts: Row) -> DoctorFinding:
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
        lacking = ("missing", f"{tool} is not installed ({purpose})", "make setup")
        yield DoctorFinding("vm", tool, *(("ok", purpose) if find_tool(tool) else lacking))
    level, detail = "lesser", "absent: the guest is emulated (slow CPU)"
    if not known.is_native:
        detail = f"not used: the guest is {known.machine}, so it is emulated (slow CPU)"
    elif Path("/dev/kvm").exists():
        level, detail = "ok", "present; a test boot shows whether it works"
    yield DoctorFinding("vm", "/dev/kvm", level, detail)


def lines(findings: list[DoctorFinding]) -> Iterator[str]:
    for finding, following in zip_longest(findings, findings[1:]):
        yield f"{finding.level:<8} {finding.host:<6} {finding.what:<20} {finding.detail}"
        if finding.hint and not (following and following.hint == finding.hint):
            yield f"{'':<36} fix: {fix_here(finding.hint)}"
    words = {
        "missing": "cannot be used",
        "partial": "can be used for treatments without limits only",
    }
    for host in ("local", "vm"):
        worst = [f for level in words for f in findings if (f.host, f.level) == (host, level)]
        reason = f"{words[worst[0].level]}: {worst[0].detail}" if worst else "can be used"
        yield f"HOST={host}: {reason}"


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
