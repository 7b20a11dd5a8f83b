#!/usr/bin/env -S python3 -S
"""A fake reader of pagecage's contract, which also plays the kernel that counts its reads.

It reads its file in 16 steps under the cap. The lie is in `lie.json` of the fake machine: a plant
to call at a moment, and changes of its own conduct.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from pathlib import Path
from typing import Any

sys.path.insert(0, os.environ["FAKE_TESTS"])
from reliability.mutants.kernel import IN_WORKLOAD, Conduct, Kernel, Place

STEPS, SHARE_OF_CAP, CAP = 16, 0.85, 20_000_000


def say(kind: str, **fields: Any) -> None:
    print(json.dumps({"type": kind, **fields}), flush=True)


class Reader:
    """One pass over the file."""

    def __init__(self) -> None:
        root = Path(os.environ["FAKE_LOG"]).parent
        self.lie = json.loads((root / "lie.json").read_text())
        self.file = Path(sys.argv[sys.argv.index("--file") + 1])
        self.place = Place(root, self.file, Kernel(root), self.lie["moment"])
        self.size = self.file.stat().st_size
        self.begin, self.sum = 0.0, 0
        status = self.file.stat()
        self.is_sparse = status.st_blocks * 512 < status.st_size
        self.conduct = Conduct(**self.lie["conduct"])

    def plant(self, moment: str) -> None:
        if (name := self.lie["plant"]) in IN_WORKLOAD:
            IN_WORKLOAD[name](self.place, moment)

    def step(self, number: int, source: int) -> None:
        """Read one part, unless it is in memory already or the conduct is another."""
        kernel, conduct, length = self.place.kernel, self.conduct, self.size // STEPS
        skips = conduct.skips_from is not None and number >= conduct.skips_from
        foreign = (self.place.root / "foreign").exists() or conduct.is_warm
        if not skips and not foreign:
            if conduct.reads_file and conduct.reads_cached:
                data = os.pread(source, length, number * length)
                self.sum = zlib.crc32(data, self.sum)
            times = 2 if conduct.reads_twice else 1
            kernel.read(
                length * times,
                times * length // 131072,
                disk=not self.is_sparse,
                cached=conduct.reads_cached and not conduct.is_charged_elsewhere,
                slice_=not (conduct.is_outside or self.is_sparse),
            )
        if foreign:
            self.sum = zlib.crc32(os.pread(source, length, number * length), self.sum)
        kernel.use_cpu(conduct.cpus * self.seconds / STEPS)
        kernel.wait("io", 0.8 * self.seconds / STEPS)
        if not skips or conduct.waits:
            due = self.begin + (number + 1) * self.seconds / STEPS
            time.sleep(max(0.0, due - time.monotonic()))

    @property
    def seconds(self) -> float:
        return self.size / (CAP * SHARE_OF_CAP)

    def run(self) -> None:
        source = os.open(self.file, os.O_RDONLY)
        if self.conduct.is_warm:
            self._load_early(source)
        self.plant("launch")
        self.place.kernel.set_cpu(*self.place.kernel.cpu())
        say("ready")
        if sys.stdin.readline() != "go\n":
            sys.exit(1)
        self.begin = time.monotonic()
        for number in range(STEPS):
            if number == STEPS // 2:
                self.plant("middle")
            if number == 3 * STEPS // 4:
                self.plant("late")
            if self.conduct.exits_from == number:
                sys.exit(0)
            self.step(number, source)
        self.place.kernel.meet_memory_limit(8 * 1024**2)
        self.plant("last")
        self.end((time.monotonic() - self.begin) * self.conduct.clock)
        while sys.stdin.readline():
            pass

    def _load_early(self, source: int) -> None:
        length = self.size // STEPS
        for number in range(STEPS):
            os.pread(source, length, number * length)
            self.place.kernel.read(length, length // 131072)

    def _expected_sum(self) -> int:
        return int(self.file.with_name(f"{self.file.name}.crc").read_text())

    def end(self, seconds: float) -> None:
        said = round(self.size * self.conduct.claims)
        say(
            "end",
            seconds=seconds,
            bytes=said,
            distinct_bytes=said,
            covered_fraction=self.conduct.claims,
            checksum=7,
            checksum_ok=self.conduct.claims_success or self.sum == self._expected_sum(),
            threads=[{"major_faults": 3}],
        )


if __name__ == "__main__":
    Reader().run()
