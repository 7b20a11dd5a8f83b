"""The tools for which a cage can be written, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from pagecage.exporters.containers import compose, docker, incus, podman
from pagecage.exporters.export import Exporter
from pagecage.exporters.kubernetes import pod
from pagecage.exporters.machines import libvirt, nbdkit
from pagecage.exporters.systemd import drop_in

ToolName = Literal[
    "systemd", "docker", "podman", "compose", "kubernetes", "incus", "libvirt", "nbdkit"
]
TOOLS: tuple[str, ...] = get_args(ToolName)
EXPORTERS: Mapping[ToolName, Exporter] = {
    "systemd": drop_in,
    "docker": docker,
    "podman": podman,
    "compose": compose,
    "kubernetes": pod,
    "incus": incus,
    "libvirt": libvirt,
    "nbdkit": nbdkit,
}
