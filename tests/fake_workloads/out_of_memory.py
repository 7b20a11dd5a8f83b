#!/usr/bin/env -S python3 -S
"""A workload that the kernel kills, as its slice records."""

import os
import signal
from pathlib import Path

from speech import note, wait_for_go

wait_for_go()
if "FAKE_SLICE" in os.environ:
    events = Path(os.environ["FAKE_SLICE"]) / "memory.events"
    events.write_text("low 0\nhigh 0\nmax 90\noom 1\noom_kill 1\n")
note("is killed")
os.kill(os.getpid(), signal.SIGKILL)
