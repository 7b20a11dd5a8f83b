"""The driver that starts the workload in a cgroup made by its files, without systemd."""

from __future__ import annotations

from pagecage.agent.drivers.driver import Driver


class CgroupfsDriver(Driver):
    """A shell that moves itself into the trial's cgroup and execs the workload."""

    name = "cgroupfs"
