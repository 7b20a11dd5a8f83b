"""A fake machine for verify: cgroups, processes, disks, and the answers of systemctl and docker."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.verify.kernel import KernelTrees
from tests.fake_host.trees import disk, mountinfo, partition

SLICE = "customers.slice"
VDA, VDB, PARTITION = "4001:0", "4001:16", "4001:17"  # numbers that no real disk has
CONTAINER_ID = "c0ffee" + "0" * 58
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
    """The machine; `kernel` is what verify reads of it."""

    root: Path

    @property
    def kernel(self) -> KernelTrees:
        return KernelTrees(self.root / "cgroup", self.root / "proc", self.root / "sys")

    @property
    def tools(self) -> Path:
        return self.root / "bin"

    def make(self) -> None:
        for folder in ("cgroup", "proc/self/ns", "sys", "bin", "systemctl", "docker"):
            (self.root / folder).mkdir(parents=True)
        (self.kernel.cgroup / "cgroup.controllers").write_text("cpu io memory\n")
        (self.kernel.proc / "self/mountinfo").write_text(mountinfo((VDA, "/", "ext4", "/dev/vda")))
        (self.kernel.proc / "self/ns/cgroup").symlink_to("cgroup:[4026531835]")
        disk(self.kernel.sys, "vda", VDA)
        disk(self.kernel.sys, "vdb", VDB)
        partition(self.kernel.sys, "vdb", "vdb1", PARTITION)
        for tool, unknown in _UNKNOWN.items():
            path = self.tools / tool
            path.write_text(_TOOL.format(answers=self.root / tool, unknown=unknown))
            path.chmod(0o755)

    def cgroup(self, path: str, pids: tuple[int, ...] = (), **files: str) -> Path:
        """Make a cgroup; `memory__max` is the file memory.max."""
        folder = self.kernel.cgroup / path
        folder.mkdir(parents=True, exist_ok=True)
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
        for name, text in {**quiet, **at_rest, **files}.items():
            (folder / name.replace("__", ".")).write_text(f"{text}\n" if text else "")
        (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        for pid in pids:
            self.process(pid, f"/{path}")
        return folder

    def process(
        self, pid: int, cgroup: str, name: str = "postgres", argv: Sequence[str] = ()
    ) -> Path:
        folder = self.kernel.proc / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        (folder / "cmdline").write_text("".join(f"{word}\0" for word in argv))
        (folder / "comm").write_text(f"{name}\n")
        (folder / "stat").write_text(f"{pid} ({name}) S 1 {' '.join(['0'] * 17)} 4711 0\n")
        return folder

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


def throttled(device: str, rate: int) -> list[dict[str, Any]]:
    """Return a device's limit as HostConfig has it."""
    return [{"Path": device, "Rate": rate}]
