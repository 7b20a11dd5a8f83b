#!/usr/bin/env -S python3 -S
"""A workload whose own figure has the name of a standard one."""

from speech import end, wait_for_go, wait_for_the_end_of_input

wait_for_go()
end(response={"read_seconds": 0.001})
wait_for_the_end_of_input()
