"""Cargo commands of tests and linters, with one build folder and the target of the workloads."""

from __future__ import annotations

import platform

TARGET = f"{platform.machine()}-unknown-linux-gnu"


def cargo(verb: str) -> list[str]:
    """Return the words of a cargo command over the whole workspace."""
    return [
        *("cargo", verb, "--workspace", "--locked", "--target", TARGET, "--target-dir"),
        "build/cargo",
    ]
