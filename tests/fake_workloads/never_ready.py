#!/usr/bin/env -S python3 -S
"""A workload that never prints `ready`."""

import time

time.sleep(600)
