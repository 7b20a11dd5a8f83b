"""A simulated volume that is served to clients: real nbdkit, real QEMU tools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pagecage.agent.volume_server import VolumeServer
from tests.builders.volumes import served


@pytest.fixture
def server() -> Iterator[VolumeServer]:
    with served() as running:
        yield running
