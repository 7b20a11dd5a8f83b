#!/usr/bin/env -S python3 -S
"""A workload that prints its end line and does not exit."""

import time

from speech import end, wait_for_go

wait_for_go()
end()
time.sleep(600)
