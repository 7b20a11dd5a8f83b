"""Findings of the doctor about the vm: its tools are found where systems keep them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage import process
from pagecage.cli import doctor
from pagecage.hosts.controller import require_tools
from pagecage.hosts.local import LocalHost
from tests.builders.facts import FIT

TOOLS = ("qemu-system-x86_64", "mmdebstrap", "ssh")
FACTS = {**FIT, "psi": True, "cachestat": True, "tools": {}, "disk": {"node": "/dev/vdb"}}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Debian machine as an ordinary user sees it: mke2fs is in /sbin, which PATH lacks."""
    for name in (*(f"bin/{tool}" for tool in TOOLS), "sbin/mke2fs"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(process, "SYSTEM_DIRECTORIES", (str(tmp_path / "sbin"),))
    monkeypatch.setattr(LocalHost, "facts", lambda _: FACTS)
    return tmp_path


def test_a_user_without_sbin_in_path_is_told_that_the_vm_can_serve(machine: Path) -> None:
    assert "HOST=vm: can be used" in list(doctor.lines(doctor.examine(None)))
    require_tools(*TOOLS, "mke2fs")


@pytest.mark.parametrize("name", ["bin/mmdebstrap", "sbin/mke2fs"])
def test_what_is_nowhere_is_missing(machine: Path, name: str) -> None:
    (machine / name).unlink()
    lines = list(doctor.lines(doctor.examine(None)))
    assert f"HOST=vm: cannot be used: {Path(name).name} is not installed" in lines[-1]
    assert any(line.startswith("missing  vm") and Path(name).name in line for line in lines)


@pytest.mark.parametrize(
    ("uid", "tracing", "level", "says"),
    [
        (0, {}, "ok", "tracepoints, kprobes, fentry if the kernel allows it"),
        (0, {"kprobes": False, "btf": False}, "ok", "v0.17.0: tracepoints"),
        (0, {"tracefs": "not mounted"}, "ok", "each run mounts tracefs"),
        (0, {"tracefs": "not mounted", "may_mount": False}, "lesser", "CAP_SYS_ADMIN"),
        (0, {"tracefs": "absent"}, "lesser", "CONFIG_TRACING"),
        (1000, {}, "lesser", "only root can trace"),
    ],
)
def test_bpftrace_is_more_than_installed(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    uid: int,
    tracing: dict[str, object],
    level: str,
    says: str,
) -> None:
    able = {"tracefs": "mounted", "may_mount": True, "btf": True, "kprobes": True, **tracing}
    changed = {"uid": uid, "tracing": able, "tools": {"bpftrace": "bpftrace v0.17.0"}}
    monkeypatch.setattr(LocalHost, "facts", lambda _: {**FACTS, **changed})
    [found] = [one for one in doctor.examine(None) if one.what == "bpftrace"]
    assert (found.level, bool(found.hint)) == (level, level == "lesser")
    assert says in found.detail


@pytest.mark.parametrize(("name", "asked"), [("perf-mem", "find_obstacle"), ("damon", "refusal")])
def test_a_collector_that_this_kernel_or_cpu_cannot_run(
    machine: Path, monkeypatch: pytest.MonkeyPatch, name: str, asked: str
) -> None:
    for reason, level in ((None, "ok"), ("it has none", "lesser")):
        monkeypatch.setattr(doctor, asked, lambda reason=reason: reason)
        [found] = [one for one in doctor.examine(None) if one.what == name]
        assert (found.level, found.detail) == (level, reason or "can be used")


def test_a_file_system_that_would_pass_limits_on_writes(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stick = {"node": "/dev/sdb", "filesystem": "vfat", "mount_point": "/mnt/stick"}
    for has_writeback in (True, False):
        facts = {**FACTS, "disk": {**stick, "has_cgroup_writeback": has_writeback}}
        monkeypatch.setattr(LocalHost, "facts", lambda _, facts=facts: facts)
        found = [one for one in doctor.examine(None) if one.what == "writeback"]
        assert len(found) == (not has_writeback)
        assert all("/mnt/stick is vfat" in one.detail for one in found)


def test_a_machine_that_reclaims_idle_pages(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds in (None, 60.0):
        monkeypatch.setattr(doctor, "idle_pageout_seconds", lambda seconds=seconds: seconds)
        found = [one for one in doctor.examine(None) if one.what == "page cache"]
        assert [one.level for one in found] == ([] if seconds is None else ["lesser"])
        assert all("not accessed for 60 s" in one.detail for one in found)
