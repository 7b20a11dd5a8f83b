"""Measurements in a process of their own, whose memory is that of what they measure."""

from __future__ import annotations

import json
import resource
import sys
from typing import Any

from pagecage.process import run
from tests.tree import ROOT


def measured_in_child(module: str, *arguments: str) -> dict[str, Any]:
    """Run a module that prints one JSON object as its last line, and return that object."""
    argv = [sys.executable, "-m", module, *arguments]
    answer: dict[str, Any] = json.loads(
        run(argv, cwd=ROOT, timeout_seconds=3600).stdout.splitlines()[-1]
    )
    return answer


def most_memory_bytes() -> int:
    """Return the most memory that this process had so far (`ru_maxrss` of getrusage(2))."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
