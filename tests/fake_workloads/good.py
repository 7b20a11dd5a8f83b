#!/usr/bin/env -S python3 -S
"""A workload that follows the contract."""

from speech import end, read_from_the_disk, say, wait_for_go, wait_for_the_end_of_input

wait_for_go()
say("sample", seconds=0.25, bytes=524288)
read_from_the_disk()
end()
wait_for_the_end_of_input()
