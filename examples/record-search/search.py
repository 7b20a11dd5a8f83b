"""Looks up 100 keys in records of 64 bytes, by binary search or by a scan of the whole file."""

import random
import sys
from pathlib import Path

way, path = sys.argv[1:]
keys = [random.Random(number).randbytes(64) for number in range(100)]
with Path(path).open("rb", buffering=0) as file:
    if way == "scan":
        while records := file.read(1 << 20):
            found = [key for key in keys if key in records]
    for key in keys if way == "search" else []:
        low, high = 0, file.seek(0, 2) // 64
        while low < high:
            middle = (low + high) // 2
            file.seek(64 * middle)
            low, high = (middle + 1, high) if file.read(64) < key else (low, middle)
