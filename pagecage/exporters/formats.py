"""The tools for which a cage can be written, by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal

from pagecage.exporters.containers import compose, drop_in, engine_command, incus, pod
from pagecage.exporters.export import Exporter
from pagecage.exporters.machines import libvirt, nbdkit

EXPORTERS: Mapping[str, Exporter] = {
    "systemd": drop_in,
    "docker": partial(engine_command, "docker"),
    "podman": partial(engine_command, "podman"),
    "compose": compose,
    "kubernetes": pod,
    "incus": incus,
    "libvirt": libvirt,
    "nbdkit": nbdkit,
}
if TYPE_CHECKING:
    ToolName = str
else:
    ToolName = Literal[tuple(EXPORTERS)]
