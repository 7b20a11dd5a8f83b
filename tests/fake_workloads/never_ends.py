#!/usr/bin/env -S python3 -S
"""A workload that starts and then prints nothing."""

import time

from speech import wait_for_go

wait_for_go()
time.sleep(600)
