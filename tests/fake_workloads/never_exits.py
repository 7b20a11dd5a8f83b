#!/usr/bin/env -S python3 -S
"""Gives its end line and stays."""

import time

from speech import end, wait_for_go

wait_for_go()
end()
time.sleep(600)
