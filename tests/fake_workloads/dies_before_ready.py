#!/usr/bin/env -S python3 -S
"""A workload that fails during its set-up."""

import sys

print("cannot open it: No such file or directory", file=sys.stderr)
sys.exit(1)
