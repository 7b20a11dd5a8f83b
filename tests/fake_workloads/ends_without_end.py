#!/usr/bin/env -S python3 -S
"""A workload that exits with status 0 but without an end line."""

from speech import wait_for_go

wait_for_go()
