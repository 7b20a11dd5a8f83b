#!/usr/bin/env -S python3 -S
"""Stops, and never gets to its end."""

import time

from speech import say, wait_for_go

wait_for_go()
say("stopped")
time.sleep(600)
