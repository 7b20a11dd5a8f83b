#!/usr/bin/env -S python3 -S
"""Gets ready, goes, and is never heard of again."""

import time

from speech import wait_for_go

wait_for_go()
time.sleep(600)
