"""A served simulated volume: real nbdkit with the compiled plugin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pagecage.agent.volume_server import PLUGIN, VolumeServer
from tests.tree import ROOT

PLUGIN_FILE = ROOT / "build/host/lib" / PLUGIN


@contextmanager
def served(size_bytes: int = 64 * 2**20) -> Iterator[VolumeServer]:
    """Serve an empty file for the block. Its folder has a short name (unix(7): 107 characters)."""
    with TemporaryDirectory(prefix="pcv-") as folder:
        file = Path(folder, "volume.raw")
        with file.open("wb") as volume:
            volume.truncate(size_bytes)
        server = VolumeServer.start(PLUGIN_FILE, file, Path(folder), Path(folder, "log"))
        try:
            yield server
        finally:
            server.end()
