"""The drivers by name: each is in the module of its name, or of the first word of it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from pagecage.agent.drivers.container import ImageDriver
from pagecage.agent.drivers.driver import Ask, Driver, DriverServices
from pagecage.agent.drivers.engine import ContainerEngines
from pagecage.model.trial import ImageSpec


def make_driver(
    name: str, engines: ContainerEngines, ask: Ask, spool: Path, image: ImageSpec | None = None
) -> Driver:
    """Return the driver with this name; with `image` one that runs a program of this image.

    Only its module is imported: that of Docker's API takes half a second on an emulated CPU.
    """
    services = DriverServices(engines, ask, spool, image)
    if image is not None:
        return ImageDriver(services, name)
    whole, first = (f"{__package__}.{one}" for one in (name.replace("-", "_"), name.split("-")[0]))
    module = import_module(whole if find_spec(whole) else first)
    classes = [one for one in vars(module).values() if isinstance(one, type)]
    [kind] = [one for one in classes if getattr(one, "name", "") == name]
    made: Driver = kind(services)
    return made
