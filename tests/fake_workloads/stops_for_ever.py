#!/usr/bin/env -S python3 -S
"""A workload that stops and never prints its end line."""

import time

from speech import say, wait_for_go

wait_for_go()
say("stopped")
time.sleep(600)
