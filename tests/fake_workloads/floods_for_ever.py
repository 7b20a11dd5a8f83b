#!/usr/bin/env -S python3 -S
"""A workload that prints samples without end."""

from speech import say, wait_for_go

wait_for_go()
while True:
    say("sample", seconds=0.0)
