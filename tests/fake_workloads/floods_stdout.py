#!/usr/bin/env -S python3 -S
"""A workload that prints twenty thousand samples and then follows the contract."""

from speech import end, say, wait_for_go, wait_for_the_end_of_input

wait_for_go()
for number in range(20_000):
    say("sample", number=number)
end()
wait_for_the_end_of_input()
