#!/usr/bin/env -S python3 -S
"""A workload that cannot work on this host."""

import sys

print("io_uring is switched off here", file=sys.stderr)
sys.exit(77)
