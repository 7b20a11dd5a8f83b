"""What a container engine says of itself, and why it cannot put a container into a trial's slice. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pagecage.requirements import delegation_command

# moby's pkg/sysinfo/cgroup2_linux.go and daemon/info_unix.go: how it says that it will discard a limit on I/O.
_NO_IO = re.compile(r"io controller|io\.max|blkio", re.IGNORECASE)


@dataclass(frozen=True)
class EngineFacts:
    """An engine as records keep it; `data_root` is where images and the layers of containers lie."""

    engine: str
    version: str
    storage_driver: str
    cgroup_driver: str
    cgroup_version: int
    rootless: bool
    data_root: str
    lacks_io: bool

    def to_json(self) -> dict[str, Any]:
        """The entry `engine` of a record."""
        return asdict(self)


def docker_facts(info: Mapping[str, Any]) -> EngineFacts:
    """From `docker info`, the answer of GET /info (Engine API)."""
    return EngineFacts(
        engine="docker", version=str(info.get("ServerVersion")), storage_driver=str(info.get("Driver")),
        cgroup_driver=str(info.get("CgroupDriver")), cgroup_version=int(info.get("CgroupVersion") or 1),
        rootless=any("rootless" in option for option in info.get("SecurityOptions") or ()),
        data_root=str(info.get("DockerRootDir")),
        lacks_io=any(_NO_IO.search(warning) for warning in info.get("Warnings") or ()),
    )  # fmt: skip


def podman_facts(info: Mapping[str, Any]) -> EngineFacts:
    """From `podman info --format json` (podman-info(1))."""
    host, store = info["host"], info["store"]
    return EngineFacts(
        engine="podman", version=str(info["version"]["Version"]), storage_driver=str(store["graphDriverName"]),
        cgroup_driver=str(host["cgroupManager"]), cgroup_version=2 if host["cgroupVersion"] == "v2" else 1,
        rootless=bool(host["security"]["rootless"]), data_root=str(store["graphRoot"]),
        lacks_io="io" not in host["cgroupControllers"],
    )  # fmt: skip


def why_unfit(facts: EngineFacts, user: bool) -> tuple[str, str] | None:
    """Why it cannot hold a trial of this systemd (`user`: a user's own), and the mend; None where it can."""
    name = facts.engine
    if facts.cgroup_version != 2:
        return f"{name} uses cgroup v1, where no limit of ours is known to it", "use HOST=vm"
    if facts.cgroup_driver != "systemd":
        return (
            f"{name} makes its cgroups itself ({facts.cgroup_driver}), so that no slice can hold its containers",
            'put {"exec-opts": ["native.cgroupdriver=systemd"]} into /etc/docker/daemon.json and restart it',
        )
    if facts.lacks_io:
        whose = f"rootless {name}" if facts.rootless else name
        return (
            f"{whose} has no io controller and discards limits on I/O with a warning",
            delegation_command(os.getuid()) if facts.rootless else "use HOST=vm",
        )
    if facts.rootless != user:
        whose = "a user's own and this is root's systemd" if facts.rootless else "root's and this is a user's systemd"
        return f"{name} is {whose}, so that it cannot put a container into our slice", "run both as the same user"
    return None
