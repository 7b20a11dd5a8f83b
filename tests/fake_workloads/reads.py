#!/usr/bin/env -S python3 -S
"""A workload that reads its file and is charged for it.

`--drops` first drops it during set-up, and `--owns-up` reports that at ready. `--direct` reads past
the page cache: the disk delivers, but no page appears. With `--short` the disk delivers an eighth.
"""

import sys
from pathlib import Path

from speech import charged, drop, end, read_from_the_disk, wait_for_go, wait_for_the_end_of_input

file = Path(sys.argv[sys.argv.index("--file") + 1])
size = file.stat().st_size
if "--drops" in sys.argv:
    drop(str(file))
wait_for_go(**({"evicted_bytes": size} if "--owns-up" in sys.argv else {}))
if "--direct" not in sys.argv:
    file.read_bytes()
    charged(size)
read_from_the_disk(size // 8 if "--short" in sys.argv else size)
end(bytes=size, distinct_bytes=size, covered_fraction=1.0)
wait_for_the_end_of_input()
