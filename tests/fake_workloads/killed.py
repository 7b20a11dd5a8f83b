#!/usr/bin/env -S python3 -S
"""A workload that another process kills, not for lack of memory."""

import os
import signal

from speech import wait_for_go

wait_for_go()
os.kill(os.getpid(), signal.SIGKILL)
