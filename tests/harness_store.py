"""The harness image and the store in which tools/build-images keeps it."""

from __future__ import annotations

from tests.tree import ROOT

IMAGE = "localhost/pagecage-harness:latest"
STORE = [
    "--root",
    ROOT / "build/images/store",
    "--runroot",
    ROOT / "build/images/run",
    "--storage-driver",
    "vfs",
]
