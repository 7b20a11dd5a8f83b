"""Counters and limits of a cgroup and its ancestors."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.agent.system.cgroupfs import ancestors, own_cgroup, read_counters, read_limits

FILES = {
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


@pytest.fixture
def cgroup(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_counters(cgroup: Path) -> None:
    counters = read_counters(cgroup)
    assert counters["memory.events"] == {"max": 1, "oom_kill": 2}
    assert counters["io.stat"] == {"254:16": {"rbytes": 10, "rios": 1}, "8:0": {}}
    assert (counters["memory.current"], counters["memory.peak"]) == (4096, 8192)
    assert counters["io.pressure"]["some"]["total"] == 7
    assert counters["cpu.pressure"] is None


def test_a_kernel_without_a_file_leaves_none(cgroup: Path) -> None:
    for name in ("memory.peak", "io.stat", "memory.events"):
        (cgroup / name).unlink()
    counters = read_counters(cgroup)
    assert counters["memory.peak"] is None
    assert counters["io.stat"] is None
    assert counters["memory.events"] is None


def test_a_cgroup_that_is_gone_has_no_counters(tmp_path: Path) -> None:
    assert set(read_counters(tmp_path / "gone").values()) == {None}


def test_limits_of_the_measured_disk_alone(cgroup: Path) -> None:
    assert read_limits(cgroup, "254:16") == {
        "memory.max": "4096",
        "memory.swap.max": "0",
        "cpu.max": "50000 100000",
        "io.max.rbps": "20000000",
        "io.max.wbps": "max",
        "io.max.riops": "500",
        "io.max.wiops": "max",
    }


def test_a_disk_without_a_line_is_not_limited(cgroup: Path) -> None:
    assert read_limits(cgroup, "254:32")["io.max.rbps"] == "max"


def test_a_cgroup_without_the_io_controller_has_no_io_limits(cgroup: Path) -> None:
    (cgroup / "io.max").unlink()
    assert not [key for key in read_limits(cgroup, "254:16") if key.startswith("io.")]


def test_ancestors_are_those_below_the_root(tmp_path: Path) -> None:
    cgroup = tmp_path / "user.slice/user-1000.slice/pagecage.slice/pagecage-x.slice"
    names = [path.name for path in ancestors(cgroup, tmp_path)]
    assert names == ["pagecage.slice", "user-1000.slice", "user.slice"]
    assert list(ancestors(tmp_path / "top.slice", tmp_path)) == []


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
def test_our_own_cgroup(tmp_path: Path, text: str, below: str) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text(text)
    assert own_cgroup(Path("/root"), tmp_path) == Path("/root") / below
