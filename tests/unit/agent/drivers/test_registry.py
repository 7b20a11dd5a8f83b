"""Each driver that a definition may name is in the module of its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.agent.drivers.engine import ContainerEngines
from pagecage.agent.drivers.registry import make_driver
from pagecage.linux.systemd import Systemd
from pagecage.model.trial import DRIVERS


@pytest.mark.parametrize("name", DRIVERS)
def test_each_driver_is_found(name: str, tmp_path: Path) -> None:
    engines = ContainerEngines(Systemd(False, 257), tmp_path, tmp_path)
    assert make_driver(name, engines, lambda *_: {}, tmp_path).name == name


def test_an_unknown_driver_is_an_error(tmp_path: Path) -> None:
    engines = ContainerEngines(Systemd(False, 257), tmp_path, tmp_path)
    with pytest.raises(ModuleNotFoundError):
        make_driver("nspawn", engines, lambda *_: {}, tmp_path)
