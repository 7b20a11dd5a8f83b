"""Counters, limits and places of cgroups of both versions, on trees of plain files."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from pagecage.linux import cgroup as cgroups
from pagecage.linux.cgroup import Cgroup, ancestors, cgroup_of, members, outside, own_cgroup
from pagecage.linux.cgroup_files import (
    CounterFiles,
    LimitFiles,
    counter_files,
    limit_file,
    limited_disks,
    read_counters,
    read_imposed_limits,
    read_limits,
    write_io_limits,
)

DISK = "254:16"
V2 = {
    "memory.stat": "anon 100\nfile 200\n",
    "memory.events": "max 1\noom_kill 2\n",
    "cpu.stat": "usage_usec 5\n",
    "memory.current": "4096\n",
    "memory.peak": "8192\n",
    "memory.swap.current": "0\n",
    "io.stat": "254:16 rbytes=10 rios=1\n8:0\n",
    "io.pressure": "some avg10=0.10 avg60=0 avg300=0 total=7\n",
    "memory.max": "4096\n",
    "memory.swap.max": "0\n",
    "cpu.max": "50000 100000\n",
    "io.max": (
        "8:0 rbps=1 wbps=2 riops=3 wiops=4\n254:16 rbps=20000000 wbps=max riops=500 wiops=max\n"
    ),
}
V1 = {
    "memory": {
        "memory.stat": "cache 1\nrss 2\ntotal_cache 200\ntotal_rss 100\ntotal_swap 7\n"
        "total_workingset_refault_file 3\ntotal_pgmajfault 4\nhierarchical_memory_limit 4096\n",
        "memory.failcnt": "1\n",
        "memory.memsw.failcnt": "2\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        "memory.usage_in_bytes": "4096\n",
        "memory.max_usage_in_bytes": "8192\n",
        "memory.limit_in_bytes": "4096\n",
        "memory.memsw.limit_in_bytes": "4096\n",
        "memory.swappiness": "60\n",
    },
    "blkio": {
        "blkio.throttle.io_service_bytes_recursive": (
            "254:16 Read 10\n254:16 Write 20\n254:16 Discard 0\n254:16 Total 30\nTotal 30\n"
        ),
        "blkio.throttle.io_serviced_recursive": "254:16 Read 1\n254:16 Write 2\nTotal 3\n",
        "blkio.throttle.read_bps_device": "8:0 1\n254:16 20000000\n",
        "blkio.throttle.write_bps_device": "",
        "blkio.throttle.read_iops_device": "254:16 500\n",
        "blkio.throttle.write_iops_device": "",
    },
    "cpu": {
        "cpu.stat": "nr_periods 9\nnr_throttled 1\nthrottled_time 3000\n",
        "cpu.cfs_quota_us": "50000\n",
        "cpu.cfs_period_us": "100000\n",
    },
    "unified": {"cpu.stat": "usage_usec 5\nuser_usec 3\n", "io.pressure": V2["io.pressure"]},
}
LIMITS = {
    "memory.max": "4096",
    "memory.swap.max": "0",
    "cpu.max": "50000 100000",
    "io.max.rbps": "20000000",
    "io.max.wbps": "max",
    "io.max.riops": "500",
    "io.max.wiops": "max",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def v2(tmp_path: Path) -> Cgroup:
    return Cgroup(unified=write(tmp_path / "v2", V2))


@pytest.fixture
def hybrid(tmp_path: Path) -> Cgroup:
    return Cgroup(**{name: write(tmp_path / name, files) for name, files in V1.items()})


def directory(cgroup: Cgroup) -> Path:
    [path] = cgroup.directories
    return path


def test_counters_of_version_2(v2: Cgroup) -> None:
    counters = read_counters(v2)
    assert counters["memory.events"] == {"max": 1, "oom_kill": 2}
    assert counters["io.stat"] == {"254:16": {"rbytes": 10, "rios": 1}, "8:0": {}}
    assert (counters["memory.current"], counters["memory.peak"]) == (4096, 8192)
    assert counters["io.pressure"]["some"]["total"] == 7
    assert counters["cpu.pressure"] is None


def test_counters_of_version_1_have_the_names_of_version_2(hybrid: Cgroup) -> None:
    counters = read_counters(hybrid)
    memory = {"anon": 100, "file": 200, "swap": 7, "workingset_refault_file": 3, "pgmajfault": 4}
    assert counters["memory.stat"] == memory
    assert counters["memory.events"] == {"max": 3, "oom_kill": 2}
    assert (counters["memory.current"], counters["memory.peak"]) == (4096, 8192)
    assert counters["memory.swap.current"] == 7
    moved = {"rbytes": 10, "wbytes": 20, "dbytes": 0, "rios": 1, "wios": 2}
    assert counters["io.stat"] == {"254:16": moved}
    quota = {"nr_periods": 9, "nr_throttled": 1, "throttled_usec": 3}
    assert counters["cpu.stat"] == {**quota, "usage_usec": 5, "user_usec": 3}
    assert counters["io.pressure"]["some"]["total"] == 7
    assert counters["cpu.pressure"] is None


def test_cpu_time_without_a_unified_hierarchy(tmp_path: Path) -> None:
    usage = write(tmp_path / "cpuacct", {"cpuacct.usage": "5000\n"})
    cpu = write(tmp_path / "cpu", V1["cpu"])
    counters = read_counters(Cgroup(memory=tmp_path, cpu=cpu, cpuacct=usage))
    assert counters["cpu.stat"]["usage_usec"] == 5
    assert counters["io.pressure"] is None


def test_a_kernel_without_a_file_leaves_none(v2: Cgroup) -> None:
    names = ("memory.peak", "io.stat", "memory.events")
    for name in names:
        (directory(v2) / name).unlink()
    counters = read_counters(v2)
    for name in names:
        assert counters[name] is None


def test_a_cgroup_that_is_gone_has_no_counters(tmp_path: Path) -> None:
    assert set(read_counters(Cgroup(unified=tmp_path / "gone")).values()) == {None}
    assert set(read_counters(Cgroup(memory=tmp_path / "gone")).values()) == {None}


def test_the_files_of_each_counter_are_named(hybrid: Cgroup, v2: Cgroup) -> None:
    assert counter_files(v2)["io.stat"] == [f"{v2}/io.stat"]
    assert counter_files(hybrid)["memory.peak"] == [f"{hybrid.memory}/memory.max_usage_in_bytes"]
    assert counter_files(hybrid)["io.pressure"] == [f"{hybrid.unified}/io.pressure"]


def test_the_hierarchies_of_a_group(hybrid: Cgroup, v2: Cgroup) -> None:
    assert (v2.hierarchy, hybrid.hierarchy) == ("v2", "hybrid")
    assert Cgroup(memory=Path("/m"), blkio=Path("/b")).hierarchy == "v1"
    assert str(hybrid) == str(hybrid.memory)
    assert hybrid.child("x").blkio == Path(f"{hybrid.blkio}/x")
    assert hybrid.identity() == Path(str(hybrid.unified)).stat().st_ino
    assert Cgroup(memory=Path("/m")).identity() is None


@pytest.mark.parametrize("name", ["v2", "hybrid"])
def test_limits_of_the_measured_disk_alone(name: str, request: pytest.FixtureRequest) -> None:
    assert read_limits(request.getfixturevalue(name), DISK) == LIMITS


@pytest.mark.parametrize("name", ["v2", "hybrid"])
def test_all_disks_with_a_limit(name: str, request: pytest.FixtureRequest) -> None:
    assert limited_disks(request.getfixturevalue(name)) == ["8:0", DISK]


def test_the_file_of_a_limit(v2: Cgroup, hybrid: Cgroup) -> None:
    assert limit_file(v2, "memory.high") == directory(v2) / "memory.high"
    assert limit_file(v2, "io.max.wiops") == directory(v2) / "io.max"
    names = {key: limit_file(hybrid, key) for key in (*LIMITS, "memory.high")}
    assert {key: file and file.name for key, file in names.items()} == {
        "memory.max": "memory.limit_in_bytes",
        "memory.high": None,
        "memory.swap.max": "memory.memsw.limit_in_bytes",
        "cpu.max": "cpu.cfs_quota_us",
        "io.max.rbps": "blkio.throttle.read_bps_device",
        "io.max.wbps": "blkio.throttle.write_bps_device",
        "io.max.riops": "blkio.throttle.read_iops_device",
        "io.max.wiops": "blkio.throttle.write_iops_device",
    }
    write(Path(str(hybrid.memory)), {"memory.swappiness": "0\n"})
    assert limit_file(hybrid, "memory.swap.max") == Path(f"{hybrid.memory}/memory.swappiness")


def test_a_disk_without_a_line_is_not_limited(v2: Cgroup, hybrid: Cgroup) -> None:
    for cgroup in (v2, hybrid):
        assert read_limits(cgroup, "254:32")["io.max.rbps"] == "max"


def test_a_missing_file_is_no_limit(v2: Cgroup, hybrid: Cgroup) -> None:
    (directory(v2) / "io.max").unlink()
    Path(str(hybrid.blkio), "blkio.throttle.write_iops_device").unlink()
    for cgroup in (v2, hybrid):
        assert not [key for key in read_limits(cgroup, DISK) if key.startswith("io.")]


def test_version_1_without_limits(hybrid: Cgroup) -> None:
    unlimited = {name: f"{2**63 - 4096}\n" for name in V1["memory"] if "limit" in name}
    write(Path(str(hybrid.memory)), unlimited)
    Path(str(hybrid.cpu), "cpu.cfs_quota_us").write_text("-1\n")
    found = read_limits(hybrid, "8:8")
    assert {found["memory.max"], found["memory.swap.max"]} == {"max"}
    assert found["cpu.max"] == "max 100000"


@pytest.mark.parametrize(
    ("swaps", "limit"),
    [("Filename Type Size Used Priority\n", "0"), ("Filename Type\n/swap file 1 0 -2\n", "max")],
)
def test_swap_without_swap_accounting(
    hybrid: Cgroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: str, limit: str
) -> None:
    monkeypatch.setattr(cgroups, "PROC", write(tmp_path / "proc", {"swaps": swaps}))
    Path(str(hybrid.memory), "memory.memsw.limit_in_bytes").unlink()
    assert read_limits(hybrid, DISK)["memory.swap.max"] == limit


def test_a_swappiness_of_0_closes_swap(hybrid: Cgroup) -> None:
    write(Path(str(hybrid.memory)), {"memory.memsw.limit_in_bytes": "8192\n"})
    assert read_limits(hybrid, DISK)["memory.swap.max"] == "4096"
    write(Path(str(hybrid.memory)), {"memory.swappiness": "0\n"})
    assert read_limits(hybrid, DISK)["memory.swap.max"] == "0"


def test_only_changed_limits_are_seen_again(hybrid: Cgroup) -> None:
    files = LimitFiles(hybrid)
    assert files.read(DISK, only_changed=True) == LIMITS
    assert files.read(DISK, only_changed=True) == {}
    Path(str(hybrid.blkio), "blkio.throttle.read_iops_device").write_text("254:16 50\n")
    assert files.read(DISK, only_changed=True)["io.max.riops"] == "50"
    assert files.read(DISK, only_changed=True) == {}
    files.close()


def test_open_counters_follow_the_kernel(hybrid: Cgroup) -> None:
    files = CounterFiles(hybrid, ("memory.current",))
    Path(str(hybrid.memory), "memory.usage_in_bytes").write_text("8192\n")
    assert files.read("memory.current") == 8192
    files.close()


def test_io_limits_are_written_in_each_version(v2: Cgroup, hybrid: Cgroup) -> None:
    write_io_limits(v2, DISK, {"rbps": "max", "riops": "7"})
    assert (directory(v2) / "io.max").read_text() == "254:16 rbps=max riops=7\n"
    write_io_limits(hybrid, DISK, {"rbps": "max", "riops": "7"})
    place = Path(str(hybrid.blkio))
    assert (place / "blkio.throttle.read_bps_device").read_text() == "254:16 0\n"
    assert (place / "blkio.throttle.read_iops_device").read_text() == "254:16 7\n"


def mounts(proc: Path, **places: Path) -> None:
    """Write mountinfo with a hierarchy of each controller; the others are in the unified one."""
    lines = []
    for name, place in places.items():
        (place / "cgroup.procs").parent.mkdir(parents=True, exist_ok=True)
        (place / "cgroup.procs").touch()
        (place / ("cgroup.controllers" if name == "unified" else "release_agent")).touch()
        kind = "cgroup2 cgroup2 rw" if name == "unified" else f"cgroup cgroup rw,{name}"
        lines.append(f"30 29 0:2 / {place} rw,nosuid - {kind}")
    write(proc / "self", {"mountinfo": "\n".join(lines) + "\n"})


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroups, "CGROUP_ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(cgroups, "PROC", tmp_path / "proc")
    return tmp_path


def test_ancestors_are_those_below_the_real_root(tree: Path) -> None:
    place = tree / "cgroup/user.slice/user-1000.slice/pagecage.slice/pagecage-x.slice"
    names = [directory(above).name for above in ancestors(Cgroup(unified=place))]
    assert names == ["pagecage.slice", "user-1000.slice", "user.slice"]
    assert list(ancestors(Cgroup(unified=tree / "cgroup/top.slice"))) == []


def test_a_namespaces_root_is_an_ancestor(tree: Path) -> None:
    write(tree / "cgroup", {"cgroup.type": "domain\n"})
    found = list(ancestors(Cgroup(unified=tree / "cgroup/x")))
    assert [directory(above) for above in found] == [tree / "cgroup"]


def test_parents_of_blkio_hold_nothing_back(tree: Path) -> None:
    names = ("unified", "memory", "blkio", "cpu")
    mounts(tree / "proc", **{name: tree / name for name in names})
    group = Cgroup(**{name: tree / name / "a/b" for name in names})
    assert list(map(directory, ancestors(group))) == [tree / "memory/a", tree / "cpu/a"]


def test_the_root_of_a_container_in_version_1_is_an_ancestor(tree: Path) -> None:
    """Only the real root has a release agent."""
    mounts(tree / "proc", memory=tree / "memory")
    (tree / "memory/release_agent").unlink()
    found = list(ancestors(Cgroup(memory=tree / "memory/x")))
    assert found == [Cgroup(memory=tree / "memory")]


def test_a_parent_to_which_nothing_is_charged_limits_nothing(tree: Path) -> None:
    mounts(tree / "proc", memory=tree / "memory")
    write(tree / "memory/a", {"memory.use_hierarchy": "0\n"})
    found = list(ancestors(Cgroup(memory=tree / "memory/a/b/c")))
    assert found == [Cgroup(memory=tree / "memory/a/b")]


def test_real_roots_are_left_out(tree: Path) -> None:
    names = ("unified", "memory", "blkio", "cpu")
    mounts(tree / "proc", **{name: tree / name for name in names})
    write(tree / "cpu/a", {})
    group = Cgroup(**{name: tree / name for name in names} | {"cpu": tree / "cpu/a"})
    assert group.without_roots() == Cgroup(blkio=tree / "blkio", cpu=tree / "cpu/a")
    write(tree / "unified", {"cgroup.type": "domain\n"})
    assert group.without_roots().unified == tree / "unified"


@pytest.mark.parametrize(
    ("text", "below"),
    [
        ("0::/user.slice/x.scope\n", "user.slice/x.scope"),
        ("12:memory:/old\n0::/a\n", "a"),
        ("0::/\n", "."),
        ("", "."),
        ("0::/odd:name\n", "odd:name"),
    ],
)
def test_our_own_cgroup(tree: Path, text: str, below: str) -> None:
    write(tree / "proc/self", {"cgroup": text})
    assert own_cgroup() == Cgroup(unified=tree / "cgroup" / below)


def test_each_controller_is_found_where_it_is_mounted(tree: Path) -> None:
    mounts(tree / "proc", unified=tree / "u", memory=tree / "m", blkio=tree / "b")
    (tree / "m/x").mkdir()
    write(tree / "proc/7", {"cgroup": "5:memory:/x\n4:blkio,other:/\n3:pids:/\n0::/y\n"})
    assert cgroup_of(7) == Cgroup(unified=tree / "u/y", memory=tree / "m/x", blkio=tree / "b")
    assert cgroup_of(8) is None


def test_the_hosts_path_in_a_container_means_the_mount_point(tree: Path) -> None:
    mounts(tree / "proc", memory=tree / "m")
    write(tree / "proc/7", {"cgroup": "5:memory:/docker/of-the-host\n"})
    assert cgroup_of(7) == Cgroup(memory=tree / "m")


def test_a_bind_mount_shows_the_containers_own_path(tree: Path) -> None:
    mounts(tree / "proc", memory=tree / "m")
    path = tree / "proc/self/mountinfo"
    path.write_text(path.read_text().replace(" / ", " /docker/x ", 1))
    (tree / "m/y").mkdir()
    write(tree / "proc/7", {"cgroup": "5:memory:/docker/x/y\n"})
    assert cgroup_of(7) == Cgroup(memory=tree / "m/y")


def test_a_hierarchy_under_another_mount_is_none(tree: Path) -> None:
    mounts(tree / "proc", unified=tree / "u", memory=tree / "m")
    (tree / "m/cgroup.procs").unlink()
    write(tree / "proc/7", {"cgroup": "5:memory:/x\n0::/y\n"})
    assert cgroup_of(7) == Cgroup(unified=tree / "u/y")


def test_imposed_limits_of_version_2_up_to_the_containers_own_cgroup(tree: Path) -> None:
    mounts(tree / "proc", unified=tree / "cgroup")
    write(tree / "proc/self", {"cgroup": "0::/ours/leaf\n"})
    write(tree / "cgroup/ours/leaf", {"memory.max": "max\n", "cpu.max": "max 100000\n"})
    write(tree / "cgroup/ours", {"io.max": f"{DISK} rbps=1000 wbps=max riops=max wiops=max\n"})
    root = {"cgroup.type": "domain\n", "memory.max": "4096\n", "cpu.max": "5 10\n"}
    write(tree / "cgroup", root | {"memory.events": "low 0\nmax 7\n"})
    assert read_imposed_limits(DISK) == {
        str(tree / "cgroup/ours"): {"io.max.rbps": "1000"},
        str(tree / "cgroup"): {"memory.max": "4096", "cpu.max": "5 10", "memory.hits": "7"},
    }


def test_imposed_limits_of_version_1(tree: Path) -> None:
    mounts(tree / "proc", **{name: tree / name for name in ("memory", "cpu", "blkio")})
    paths = "5:memory:/docker/x\n4:cpu:/docker/x\n3:blkio:/docker/x\n"
    write(tree / "proc/self", {"cgroup": paths})
    for name, files in V1.items():
        if name != "unified":
            write(tree / name / "docker/x", files)
    write(tree / "blkio/docker", V1["blkio"])
    memory = {"memory.max": "4096", "memory.swap.max": "0", "memory.hits": "3"}
    assert read_imposed_limits(DISK) == {
        str(tree / "memory/docker/x"): memory,
        str(tree / "blkio/docker/x"): {"io.max.rbps": "20000000", "io.max.riops": "500"},
        str(tree / "cpu/docker/x"): {"cpu.max": "50000 100000"},
    }


def test_without_limits_there_is_nothing(tree: Path) -> None:
    assert read_imposed_limits(DISK) == {}


def test_a_cgroup_removed_during_the_walk_is_no_error(tmp_path: Path) -> None:
    """systemd may remove the scope of a short command during the walk."""
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    is_over = threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            for number in range(20):
                (tmp_path / f"run-{number}.scope").mkdir()
            for number in range(20):
                (tmp_path / f"run-{number}.scope").rmdir()

    churn = threading.Thread(target=come_and_go)
    churn.start()
    try:
        for _ in range(300):
            assert [member.pid for member in members(Cgroup(unified=tmp_path))] == [os.getpid()]
    finally:
        is_over.set()
        churn.join()


def test_an_exited_process_has_not_escaped(tmp_path: Path) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert outside(child.pid, Cgroup(unified=tmp_path)) == []
