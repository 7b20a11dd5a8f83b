"""The drivers by name."""

from __future__ import annotations

from pathlib import Path

from pagecage.agent.drivers.cgroupfs import CgroupfsDriver
from pagecage.agent.drivers.container import ImageDriver
from pagecage.agent.drivers.driver import Ask, Driver
from pagecage.agent.drivers.engine import ContainerEngines
from pagecage.agent.drivers.process import ProcessDriver
from pagecage.agent.drivers.qemu_throttle import QemuThrottleDriver
from pagecage.agent.drivers.systemd_run import SystemdScopeDriver, SystemdServiceDriver
from pagecage.model.trial import ImageSpec


def make_driver(
    name: str, engines: ContainerEngines, ask: Ask, spool: Path, image: ImageSpec | None = None
) -> Driver:
    """Return the driver with this name; with `image` one that runs a program of this image."""
    if image is not None:
        return ImageDriver(engines.get(name), image)
    match name:
        case "systemd-scope":
            return SystemdScopeDriver()
        case "systemd-service":
            return SystemdServiceDriver()
        case "cgroupfs":
            return CgroupfsDriver()
        case "qemu-throttle":
            return QemuThrottleDriver(ask)
        case "process":
            return ProcessDriver(spool)
        case _:
            return _container(name, engines)


def _container(name: str, engines: ContainerEngines) -> Driver:
    # Importing HTTP takes half a second on an emulated CPU, so only trials in containers do it.
    from pagecage.agent.drivers.docker import DockerApiDriver, DockerDriver, DockerFlagsDriver

    if name == "podman":
        return DockerDriver(engines.get("podman"))
    drivers: dict[str, type[DockerDriver]] = {
        "docker": DockerDriver,
        "docker-flags": DockerFlagsDriver,
        "docker-api": DockerApiDriver,
    }
    return drivers[name](engines.get("docker"))
