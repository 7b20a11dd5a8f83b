"""Whether the machine has come to rest: who started a workload may be busy for a while when it waits at its gate."""

from __future__ import annotations

import time
from collections.abc import Mapping

from pagecage.agent.procfs import read_cpu

MOST_SECONDS = 10.0
"""A machine that is busy for longer is so with something else, which the verdict on its quiet tells."""
_WINDOW_SECONDS = 0.25
_CPUS = 0.5
"""Our own collectors need less, even where every instruction is translated."""
_IDLE = ("idle", "iowait", "guest", "guest_nice", "ticks_per_second")
"""What of proc_stat(5)'s line is no work; a guest's time is in `user` already."""


def wait_for_rest(most_seconds: float = MOST_SECONDS) -> float:
    """Wait until fewer than half a CPU was busy over a quarter of a second, at most `most_seconds`; the seconds waited.

    A container's runtime and daemon work for about two seconds after their workload runs, in an emulated guest, and a
    workload measured beside them is as much slower.
    """
    began = time.monotonic()
    while time.monotonic() - began < most_seconds:
        before = read_cpu()
        time.sleep(_WINDOW_SECONDS)
        if _busy_cpus(before, read_cpu()) < _CPUS:
            break
    return time.monotonic() - began


def _busy_cpus(before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> float:
    """How many CPUs were busy over the window; none where the kernel does not count."""
    if before is None or after is None:
        return 0.0
    ticks = sum(after[name] - before[name] for name in after if name not in _IDLE)
    return ticks / after["ticks_per_second"] / _WINDOW_SECONDS
