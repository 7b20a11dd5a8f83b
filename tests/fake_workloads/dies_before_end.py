#!/usr/bin/env -S python3 -S
"""A workload that dies in the middle of its measured part."""

import os
import signal

from speech import say, wait_for_go

wait_for_go()
say("sample", seconds=0.25, bytes=524288)
os.kill(os.getpid(), signal.SIGSEGV)
