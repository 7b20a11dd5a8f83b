#!/usr/bin/env -S python3 -S
"""Is killed by somebody, but not for want of memory."""

import os
import signal

from speech import wait_for_go

wait_for_go()
os.kill(os.getpid(), signal.SIGKILL)
