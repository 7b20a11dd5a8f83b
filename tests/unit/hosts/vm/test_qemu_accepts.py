"""The guest's machine, as a real QEMU builds it without starting its processors."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest

from pagecage.hosts.agent_package import ARCHITECTURES, VARIABLE, architecture
from pagecage.hosts.host import ResourceNeeds
from pagecage.hosts.vm.image import GuestImage
from pagecage.hosts.vm.qemu import PORTS, Acceleration, QmpClient, machine_for, qemu_argv
from pagecage.process import run, spawn

BYTES = 1 << 20
OTHERS = [
    pytest.param(name, marks=[] if name == platform.machine() else pytest.mark.long)
    for name in ARCHITECTURES
]


@pytest.mark.parametrize("name", OTHERS)
def test_qemu_has_every_device_of_the_guest(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, name)
    program = architecture().qemu
    assert shutil.which(program), f"there is no {program}: make test-long installs it"
    image, disk, errors = GuestImage(tmp_path), tmp_path / "disk.qcow2", tmp_path / "errors"
    run(["qemu-img", "create", "-q", "-f", "qcow2", disk, str(BYTES)])
    machine = machine_for(ResourceNeeds(0, 0), Acceleration("tcg", "max", ""))
    argv = qemu_argv(machine, image, disk, tmp_path, tmp_path / "console")
    start = argv.index("-kernel")
    del argv[start : argv.index("-append") + 2]  # x86-64 loads a kernel only if it is one
    with errors.open("wb") as output:
        process = spawn(argv, stderr=output)
    monitor = QmpClient(tmp_path / "qmp")
    try:
        assert monitor.connect(60), errors.read_text()
        assert monitor.status() == "prelaunch"
        ports = [one["qdev_id"] for bus in monitor.execute("query-pci") for one in bus["devices"]]
        assert set(PORTS) <= set(ports)
        assert monitor.forwarded_port() > 0
    finally:
        monitor.close()
        process.kill()
        process.wait()
