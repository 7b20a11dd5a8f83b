"""Requirements of tests of volumes on this machine: root, FUSE and loop devices."""

from __future__ import annotations

import pytest

from pagecage.agent.volume_server import FuseLoop
from pagecage.errors import HostError
from tests.tree import ROOT

PROGRAMS = ROOT / "build/host/lib"


def _missing() -> str:
    try:
        FuseLoop().require()
    except HostError as error:
        return error.message
    return ""


needs_fuse = pytest.mark.skipif(bool(_missing()), reason=_missing() or "it can attach volumes")
