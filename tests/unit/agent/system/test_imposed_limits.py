"""Limits that a container or a session imposes, of both versions of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.agent.system import imposed_limits
from pagecage.agent.system.imposed_limits import read_imposed_limits

DISK = "8:0"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "cgroup").mkdir()
    monkeypatch.setattr(imposed_limits, "CGROUP_ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(imposed_limits, "own_cgroup", lambda root: root / "ours/leaf")
    return tmp_path


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_version_2_is_read_up_to_the_containers_own_cgroup(tree: Path) -> None:
    write(tree / "cgroup/ours/leaf", memory__max="max", cpu__max="max 100000")
    write(tree / "cgroup/ours", io__max=f"{DISK} rbps=1000 wbps=max riops=max wiops=max")
    write(tree / "cgroup", memory__max="4096", memory__events="low 0\nmax 7", cpu__max="5 10")
    assert read_imposed_limits(DISK, tree / "proc") == {
        str(tree / "cgroup/ours"): {"io.max.rbps": "1000"},
        str(tree / "cgroup"): {"memory.max": "4096", "cpu.max": "5 10", "memory.hits": "7"},
    }


def v1(tree: Path, **paths: str) -> None:
    lines = [f"{n}:{names}:{path}" for n, (names, path) in enumerate(paths.items(), 2)]
    (tree / "proc/self/cgroup").write_text("\n".join([*lines, "0::/"]) + "\n")
    mounts = [f"30 29 0:2 / {tree / name} rw,nosuid - cgroup cgroup rw,{name}" for name in paths]
    (tree / "proc/self/mountinfo").write_text("\n".join(mounts) + "\n")


def test_version_1_is_read_under_the_names_of_version_2(tree: Path) -> None:
    v1(tree, memory="/docker/x", cpu="/docker/x", blkio="/docker/x", pids="/docker/x")
    write(tree / "memory/docker/x", memory__limit_in_bytes="1048576", memory__failcnt="3")
    write(tree / "memory", memory__limit_in_bytes=str(2**63 - 4096), memory__failcnt="0")
    write(tree / "cpu/docker/x", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    write(tree / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    write(tree / "blkio/docker/x", blkio__throttle__read_bps_device=f"9:0 1\n{DISK} 12345")
    assert read_imposed_limits(DISK, tree / "proc") == {
        str(tree / "memory/docker/x"): {"memory.hits": "3", "memory.max": "1048576"},
        str(tree / "cpu/docker/x"): {"cpu.max": "50000 100000"},
        str(tree / "blkio/docker/x"): {"io.max.rbps": "12345"},
    }


def test_the_hosts_path_in_a_container_means_the_mount_point(tree: Path) -> None:
    v1(tree, memory="/docker/of-the-host")
    write(tree / "memory", memory__limit_in_bytes="4096", memory__failcnt="0")
    assert list(read_imposed_limits(DISK, tree / "proc")) == [str(tree / "memory")]


def test_without_limits_there_is_nothing(tree: Path) -> None:
    assert read_imposed_limits(DISK, tree / "proc") == {}
