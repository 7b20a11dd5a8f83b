"""A fake machine for verify: cgroups, processes, disks, and the answers of systemctl and docker."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pagecage.linux.cgroup_files import V1_IO_FILE
from pagecage.linux.procfs import parse_flat_keyed, parse_limits, parse_nested_keyed
from pagecage.model.json_codec import Json
from pagecage.verify.kernel import KernelTrees
from pagecage.verify.verification import Verification
from tests.fake_host.trees import disk, mountinfo, partition

SLICE = "customers.slice"
VDA, VDB, PARTITION = "4001:0", "4001:16", "4001:17"  # numbers that no real disk has
CONTAINER_ID = "c0ffee" + "0" * 58
UNIT = f"{SLICE}/web.service"
SCOPE = f"{SLICE}/docker-{CONTAINER_ID}.scope"
PID = 4242
_FILES_OF_VERSION_1 = {
    "memory.max": "memory.limit_in_bytes",
    "io.max": "blkio.throttle.read_iops_device",
    "cpu.max": "cpu.cfs_quota_us",
}
_NO_BYTES = 2**63 - 4096  # as version 1 shows "no limit"
EVERY_HIERARCHY = pytest.mark.parametrize("machine", ["v2", "v1", "hybrid"], indirect=True)
ON_VERSION_1 = pytest.mark.parametrize("machine", ["v1", "hybrid"], indirect=True)
QUIET = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 total=0\n"
# A fake systemctl or docker. A name after `--` has its answer in a file, or is unknown.
_TOOL = """#!/bin/sh
case " $* " in *" --user "*) of=user. ;; *) of= ;; esac
separator=
while [ "$1" != -- ]; do shift; done
shift
for name; do
    answer="{answers}/$of$name"
    [ ! -e "$answer.fails" ] || {{ /bin/cat "$answer.fails" >&2; exit 1; }}
    printf '%s' "$separator"
    if [ -e "$answer" ]; then /bin/cat "$answer"; else {unknown}; fi
    separator='
'
done
"""
_UNKNOWN = {
    "systemctl": "printf 'Id=%s\\nLoadState=not-found\\nActiveState=inactive\\n' \"$name\"",
    "docker": 'echo "Error: No such container: $name" >&2; exit 1',
}


@dataclass(frozen=True)
class VerifiedMachine:
    """The machine; `kernel` is what verify reads of it.

    Cgroups are given by the names of version 2, and are written as `hierarchy` has them.
    """

    root: Path
    hierarchy: str = "v2"

    @property
    def kernel(self) -> KernelTrees:
        return KernelTrees(self.root / "proc", self.root / "sys")

    @property
    def mounts(self) -> dict[str, Path]:
        """The mount points of the hierarchies, by controller."""
        place = self.root / "cgroup"
        if self.hierarchy == "v2":
            return {"unified": place}
        names = ["memory", "blkio", "cpu", "name=systemd"]
        names += ["unified"] if self.hierarchy == "hybrid" else []
        return {name: place / name.removeprefix("name=") for name in names}

    @property
    def mount(self) -> Path:
        """The mount point of the hierarchy in which systemd has its units."""
        return self.mounts["unified" if self.hierarchy == "v2" else "name=systemd"]

    @property
    def tools(self) -> Path:
        return self.root / "bin"

    def file(self, name: str) -> str:
        """Return the name of the file that has a limit of version 2."""
        return name if self.hierarchy == "v2" else _FILES_OF_VERSION_1[name]

    def make(self) -> None:
        for folder in ("proc/self/ns", "sys", "bin", "systemctl", "docker"):
            (self.root / folder).mkdir(parents=True)
        for name, place in self.mounts.items():
            place.mkdir(parents=True)
            (place / "cgroup.procs").touch()
            (place / ("cgroup.controllers" if name == "unified" else "release_agent")).touch()
        if self.hierarchy == "v2":
            (self.mount / "cgroup.controllers").write_text("cpu io memory\n")
        self.mounted()
        (self.kernel.proc / "self/ns/cgroup").symlink_to("cgroup:[4026531835]")
        disk(self.kernel.sys, "vda", VDA)
        disk(self.kernel.sys, "vdb", VDB)
        partition(self.kernel.sys, "vdb", "vdb1", PARTITION)
        for tool, unknown in _UNKNOWN.items():
            path = self.tools / tool
            path.write_text(_TOOL.format(answers=self.root / tool, unknown=unknown))
            path.chmod(0o755)

    def mounted(self, path: str = "/") -> None:
        """Write the mounts, with this path of the hierarchies (a bind mount of a container)."""
        text = mountinfo((VDA, "/", "ext4", "/dev/vda"))
        for name, place in self.mounts.items():
            kind = "cgroup2 cgroup2 rw" if name == "unified" else f"cgroup cgroup rw,{name}"
            text += f"40 1 0:40 {path} {place} rw - {kind}\n"
        (self.kernel.proc / "self/mountinfo").write_text(text)

    def cgroup(self, path: str, pids: tuple[int, ...] = (), **files: str) -> Path:
        """Make a cgroup in every hierarchy, and return systemd's; `memory__max` is memory.max."""
        quiet = {f"{kind}__pressure": QUIET for kind in ("io", "memory", "cpu")}
        at_rest = {
            "memory__max": "max",
            "memory__high": "max",
            "memory__swap__max": "max",
            "cpu__max": "max 100000",
            "io__max": "",
            "io__stat": "",
            "memory__events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
        }
        texts = {
            name.replace("__", "."): f"{text}\n" if text else ""
            for name, text in {**quiet, **at_rest, **files}.items()
        }
        for name, mount in self.mounts.items():
            folder = mount / path
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
            for file, text in self._files(name, texts).items():
                (folder / file).write_text(text)
        for pid in pids:
            self.process(pid, f"/{path}")
        return self.mount / path

    def _files(self, hierarchy: str, texts: Mapping[str, str]) -> dict[str, str]:
        """Return the files of a cgroup in one hierarchy."""
        if hierarchy != "unified":
            return {**_version_1(hierarchy, texts), "notify_on_release": "0\n"}
        kept = texts if self.hierarchy == "v2" else {n: t for n, t in texts.items() if "pres" in n}
        return {**kept, "cgroup.type": "domain\n"}

    def process(
        self, pid: int, cgroup: str, name: str = "postgres", argv: Sequence[str] = ()
    ) -> Path:
        folder = self.kernel.proc / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        self.enter(pid, dict.fromkeys(self.mounts, cgroup))
        (folder / "cmdline").write_text("".join(f"{word}\0" for word in argv))
        (folder / "comm").write_text(f"{name}\n")
        (folder / "stat").write_text(f"{pid} ({name}) S 1 {' '.join(['0'] * 17)} 4711 0\n")
        return folder

    def enter(self, pid: int, paths: Mapping[str, str]) -> None:
        """Put a process into these groups, by controller."""
        text = "".join(f"5:{name}:{path}\n" for name, path in paths.items())
        (self.kernel.proc / f"{pid}/cgroup").write_text(text.replace("5:unified:", "0::"))

    def unit(self, path: str, user: bool = False, **properties: str) -> None:
        """Write the answer of `systemctl show` for the unit of a cgroup."""
        name = path.rpartition("/")[2]
        found = {"Id": name, "LoadState": "loaded", "ActiveState": "active"}
        found |= {"ControlGroup": f"/{path}", **properties}
        text = "".join(f"{key}={value}\n" for key, value in found.items())
        self.answer("systemctl", f"user.{name}" if user else name, text)

    def answer(self, tool: str, word: str, text: str) -> None:
        (self.root / tool / word).write_text(text)

    def container(self, pid: int, name: str = "orders-db", **host_config: Any) -> None:
        """Write the answer of `docker inspect` for a container, by its name and its id."""
        row = {
            "Id": CONTAINER_ID,
            "Name": f"/{name}",
            "State": {"Pid": pid},
            "HostConfig": host_config,
        }
        for word in (name, CONTAINER_ID):
            self.answer("docker", word, json.dumps([row]))

    def path(self) -> str:
        """Return a PATH with these tools alone."""
        return os.fspath(self.tools)


def _version_1(hierarchy: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the files of one hierarchy of version 1 for texts of version 2."""
    if hierarchy == "memory":
        limit, swap = (_bytes(texts[name]) for name in ("memory.max", "memory.swap.max"))
        events = parse_flat_keyed(texts["memory.events"])
        return {
            "memory.limit_in_bytes": f"{limit}\n",
            "memory.memsw.limit_in_bytes": f"{min(limit + swap, _NO_BYTES)}\n",
            "memory.swappiness": "60\n",
            "memory.failcnt": f"{events['max']}\n",
            "memory.oom_control": f"under_oom 0\noom_kill {events['oom_kill']}\n",
            "memory.stat": "".join(f"total_{line}\n" for line in _lines(texts, "memory.stat")),
        }
    if hierarchy == "blkio":
        return _version_1_io(parse_limits(texts["io.max"]), parse_nested_keyed(texts["io.stat"]))
    if hierarchy == "cpu":
        quota, period = texts["cpu.max"].split()
        return {
            "cpu.cfs_quota_us": f"{'-1' if quota == 'max' else quota}\n",
            "cpu.cfs_period_us": f"{period}\n",
            "cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
        }
    return {}


def _lines(texts: Mapping[str, str], name: str) -> list[str]:
    return texts.get(name, "").splitlines()


def _bytes(text: str) -> int:
    return _NO_BYTES if text.strip() == "max" else int(text)


def _version_1_io(
    limits: Mapping[str, Mapping[str, str]], stats: Mapping[str, Mapping[str, int]]
) -> dict[str, str]:
    found = {
        file: "".join(
            f"{disk} {keys[key]}\n"
            for disk, keys in limits.items()
            if keys.get(key, "max") != "max"
        )
        for key, file in V1_IO_FILE.items()
    }
    for file, unit in (("service_bytes", "bytes"), ("serviced", "ios")):
        found[f"blkio.throttle.io_{file}_recursive"] = "".join(
            f"{disk} Read {n[f'r{unit}']}\n{disk} Write {n[f'w{unit}']}\n{disk} Total 0\n"
            for disk, n in stats.items()
        )
    return found


def throttled(device: str, rate: int) -> list[Json]:
    """Return a device's limit as HostConfig has it."""
    return [{"Path": device, "Rate": rate}]


def states(found: Verification) -> dict[str, str]:
    """Return the state of each requested limit by name."""
    return {one.requested.name: one.state for one in found.comparisons}
