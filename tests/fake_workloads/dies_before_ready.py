#!/usr/bin/env -S python3 -S
"""Finds something wrong while it gets ready."""

import sys

print("cannot open it: No such file or directory", file=sys.stderr)
sys.exit(1)
