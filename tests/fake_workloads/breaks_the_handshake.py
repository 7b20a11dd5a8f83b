#!/usr/bin/env -S python3 -S
"""A workload that breaks the handshake in the way that its argument names."""

import os
import sys
import time

from speech import end, say, wait_for_go, wait_for_the_end_of_input

way = sys.argv[1]
if way == "dies before ready":
    sys.exit(3)
if way == "never ready":
    time.sleep(60)
if way == "other version":
    say("ready", protocol=2)
    time.sleep(60)
if way == "starts by itself":
    # In one write, so that `sample` arrives before `go` also on a busy machine.
    os.write(1, b'{"type": "ready"}\n{"type": "sample", "seconds": 1}\n')
    time.sleep(60)
if way == "garbage before ready":
    print("hello, I am a program", flush=True)
wait_for_go()
if way == "ready twice":
    say("ready")
if way == "unknown message":
    say("progress", percent=50)
if way == "garbage":
    print("\x00\xff{ 50 %", flush=True)
if way == "not a number":
    print('{"type": "end", "seconds": NaN}', flush=True)
if way == "infinite response":
    end(response={"speed": float("inf")})
if way == "overflow":
    print('{"type": "end", "seconds": 1, "response": {"speed": 1e999}}', flush=True)
if way == "words for numbers":
    end(seconds="soon")
if way == "half a line":
    os.write(1, b'{"type": "en')
    os.abort()
end()
if way == "end twice":
    end()
wait_for_the_end_of_input()
