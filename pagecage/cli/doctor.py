"""What this machine has and lacks for measuring: as host `local`, and for running the vm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pagecage.cli.output import Json
from pagecage.cli.paths import Folder
from pagecage.errors import EXIT_HOST, EXIT_OK
from pagecage.hosts.local import LocalHost
from pagecage.model.requirements import MissedRequirement, check_host
from pagecage.process import find_tool

_VM_TOOLS = {
    "qemu-system-x86_64": "runs the guest", "mmdebstrap": "makes its root file system", "mke2fs": "makes its disks",
    "ssh": "reaches it",
}  # fmt: skip
_COLLECTORS = ("iostat", "sar", "vmtouch", "bpftrace", "fio")


@dataclass(frozen=True)
class DoctorFinding:
    """One line of the diagnosis. `level` is ok, missing (prevents the host) or lesser (a collector less)."""

    host: str
    what: str
    level: str
    detail: str
    hint: str = ""


def examine(data_dir: Path | None) -> list[DoctorFinding]:
    """Everything that matters, in the order it matters."""
    facts = LocalHost(data_dir).facts()
    return [*_local(facts), *_collectors(facts), *_vm()]


def _local(facts: dict[str, Any]) -> Iterator[DoctorFinding]:
    missed: list[MissedRequirement] = check_host(facts)
    for miss in missed:
        yield DoctorFinding("local", miss.requirement.value, "missing", miss.reason, miss.hint)
    if not missed:
        manager = facts["cgroup"]["manager"]
        yield DoctorFinding("local", "limits", "ok", f"{manager} can cap memory and I/O on {facts['disk']['node']}")
    if not facts["psi"]:
        hint = "boot with psi=1"
        yield DoctorFinding("local", "psi", "lesser", "no pressure figures: which limit binds cannot be told", hint)
    method = "cachestat" if facts["cachestat"] else "mincore"
    yield DoctorFinding("local", "residency", "ok", f"measured by {method}")


def _collectors(facts: dict[str, Any]) -> Iterator[DoctorFinding]:
    for name in _COLLECTORS:
        version = facts["tools"].get(name)
        if version:
            yield DoctorFinding("local", name, "ok", version)
        else:
            yield DoctorFinding(
                "local", name, "lesser", "not installed", "ansible/site.yml installs it, or apt install"
            )


def _vm() -> Iterator[DoctorFinding]:
    for tool, purpose in _VM_TOOLS.items():
        if find_tool(tool):
            yield DoctorFinding("vm", tool, "ok", purpose)
        else:
            yield DoctorFinding("vm", tool, "missing", f"{tool} is not installed, which {purpose}", "make setup")
    kvm = Path("/dev/kvm").exists()
    detail = "present; a test boot tells whether it works" if kvm else "absent: the guest will be emulated (slow CPU)"
    yield DoctorFinding("vm", "/dev/kvm", "ok" if kvm else "lesser", detail)


def lines(findings: list[DoctorFinding]) -> Iterator[str]:
    """The diagnosis for a terminal: a line a finding, its fix beneath where there is one."""
    for finding, following in zip_longest(findings, findings[1:]):
        yield f"{finding.level:<8} {finding.host:<6} {finding.what:<20} {finding.detail}"
        if finding.hint and not (following and following.hint == finding.hint):
            yield f"{'':<36} fix: {finding.hint}"
    for host in ("local", "vm"):
        missing = [f for f in findings if f.host == host and f.level == "missing"]
        yield f"HOST={host}: {'can serve' if not missing else 'cannot serve: ' + missing[0].detail}"


def doctor(*, data_dir: Folder | None = None, as_json: Json = False) -> int:
    """Say what this machine has and lacks for measuring, and what fixes it; 3 when no host would work."""
    findings = examine(data_dir)
    if as_json:
        print(json.dumps([vars(finding) for finding in findings]))
    else:
        print("\n".join(lines(findings)))
    hosts = {f.host for f in findings} - {f.host for f in findings if f.level == "missing"}
    return EXIT_OK if hosts else EXIT_HOST
