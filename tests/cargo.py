"""How cargo is called for tests and linters: one folder for what it builds, the target that workloads are built for."""

from __future__ import annotations

import platform

TARGET = f"{platform.machine()}-unknown-linux-gnu"


def cargo(verb: str) -> list[str]:
    """The words of a cargo command over the whole workspace."""
    return ["cargo", verb, "--workspace", "--locked", "--target", TARGET, "--target-dir", "build/cargo"]
