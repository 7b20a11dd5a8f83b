"""The harness image and the store in which tools/build-images keeps it."""

from __future__ import annotations

from pathlib import Path

from tests.tree import ROOT

IMAGE = "localhost/pagecage-harness:latest"
STORE: list[str | Path] = [
    *("--root", ROOT / "build/images/store", "--runroot", ROOT / "build/images/run"),
    *("--storage-driver", "vfs"),
]
