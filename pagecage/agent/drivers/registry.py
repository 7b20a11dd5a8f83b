"""Which driver has which name."""

from __future__ import annotations

from pagecage.agent.drivers.driver import Ask, Driver
from pagecage.agent.drivers.engine import ContainerEngines
from pagecage.agent.drivers.qemu_throttle import QemuThrottle
from pagecage.agent.drivers.systemd_run import SystemdScope, SystemdService


def make_driver(name: str, engines: ContainerEngines, ask: Ask) -> Driver:
    """The driver of one trial, by its name in a plan."""
    match name:
        case "systemd-scope":
            return SystemdScope()
        case "systemd-service":
            return SystemdService()
        case "qemu-throttle":
            return QemuThrottle(ask)
        case _:
            return _container(name, engines)


def _container(name: str, engines: ContainerEngines) -> Driver:
    """Imported for those alone who ask: HTTP takes an emulated machine half a second to import."""
    from pagecage.agent.drivers.docker import Docker, DockerApi, DockerFlags

    if name == "podman":
        return Docker(engines.get("podman"))
    drivers: dict[str, type[Docker]] = {"docker": Docker, "docker-flags": DockerFlags, "docker-api": DockerApi}
    return drivers[name](engines.get("docker"))
