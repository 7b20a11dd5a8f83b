#!/usr/bin/env -S python3 -S
"""Prints samples without an end."""

from speech import say, wait_for_go

wait_for_go()
while True:
    say("sample", seconds=0.0)
