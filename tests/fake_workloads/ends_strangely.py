#!/usr/bin/env -S python3 -S
"""A workload whose end line has words instead of numbers."""

from speech import end, wait_for_go, wait_for_the_end_of_input

wait_for_go()
end(seconds="soon", bytes="many", threads=[{}])
wait_for_the_end_of_input()
