#!/usr/bin/env -S python3 -S
"""A workload that stops and then reads back its writes. The counters of a trial are taken at
`stopped`.
"""

import time

from speech import end, read_from_the_disk, say, wait_for_go, wait_for_the_end_of_input

VERIFYING_SECONDS = 0.4

wait_for_go()
read_from_the_disk(4096, 1)
say("stopped")
time.sleep(VERIFYING_SECONDS)
read_from_the_disk(1048576, 8)
end(seconds=0.01)
wait_for_the_end_of_input()
