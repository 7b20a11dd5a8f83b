"""The lock of tests that run trials on this machine, where there is one run at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagecage.hosts.local import LocalHost


@contextmanager
def one_run_at_a_time() -> Iterator[None]:
    """Wait for the runs of other tests, which may belong to another process of pytest."""
    with Path(f"{LocalHost().spool_dir}-tests.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
