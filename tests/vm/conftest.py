from __future__ import annotations

from collections.abc import Iterator

import pytest

from pagecage.hosts.host import ResourceNeeds
from pagecage.hosts.vm.vm_host import VmHost


@pytest.fixture(scope="module")
def host() -> Iterator[VmHost]:
    """The guest, started for the tests of a module."""
    host = VmHost()
    try:
        host.prepare(ResourceNeeds(0, 0), print)
        host.start()
        yield host
    finally:
        host.stop()
