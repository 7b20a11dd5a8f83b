"""The driver that starts the workload in a container of podman."""

from __future__ import annotations

from pagecage.agent.drivers.docker import DockerDriver


class PodmanDriver(DockerDriver):
    """Podman, with the trial's slice as the container's parent."""

    name = program = "podman"
