#!/usr/bin/env -S python3 -S
"""A workload that read other bytes than were written."""

from speech import end, wait_for_go, wait_for_the_end_of_input

wait_for_go()
end(checksum=8, checksum_ok=False)
wait_for_the_end_of_input()
