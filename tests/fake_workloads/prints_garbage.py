#!/usr/bin/env -S python3 -S
"""A workload that mixes lines of the contract with other output."""

from speech import end, wait_for_go, wait_for_the_end_of_input

print("hello, I am a program", flush=True)
for line in (
    "12",
    "[]",
    '"ready"',
    "null",
    "true",
    "{}",
    '{"type": 3}',
    '{"type": ["end"]}',
    "\x00\xff{",
):
    print(line, flush=True)
wait_for_go()
print('{"type": "sample", "cut', flush=True)
end()
wait_for_the_end_of_input()
