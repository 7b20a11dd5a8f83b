"""One bpftrace for a whole machine state: faults and read-ahead counted in kernel maps, printed four times a second.

Attaching takes seconds, so no trial pays for it; a printf for every fault would cost 40 %, so the kernel counts.
Maps are never cleared: each tick prints running totals and a trial takes the ticks around its measured part, so
nothing falls between print and clear. "Attached" is the first tick: bpftrace prints its banner before that.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.agent.children import Children
from pagecage.agent.collectors.collector import Outcome
from pagecage.agent.collectors.fault_flags import FAULT_FLAGS, VM_FLAGS, decode
from pagecage.process import PIPE, STDOUT, Process

TICK_SECONDS = 0.25
_ATTACH_SECONDS = 60.0
_LOST = re.compile(r"Lost (\d+) events")
# Each pointer is cast by itself: the chain vmf->vma->vm_file->f_inode does not compile. The read-ahead's file is
# reached through its mapping, because ractl->file may be null.
_FAULT = """
fentry:vmlinux:filemap_fault {
  $file = (struct file *)args.vmf->vma->vm_file;
  $inode = (struct inode *)$file->f_inode;
  @fault[$inode->i_ino, (uint64)args.vmf->vma->vm_flags, (uint64)args.vmf->flags,
         (uint64)$file->f_ra.ra_pages] = count();
}
"""
_READAHEAD = """
fentry:vmlinux:page_cache_ra_order {
  $mapping = (struct address_space *)args.ractl->mapping;
  $host = (struct inode *)$mapping->host;
  @ra[$host->i_ino, (uint64)args.ra->size] = count();
}
"""
_TICK = 'interval:ms:250 { print(@fault); print(@ra); printf("TICK %llu\\n", nsecs); }\n'


@dataclass(frozen=True)
class Tick:
    """Running totals: the kernel's time of the tick (CLOCK_BOOTTIME, ns), ours of reading it, events lost, the maps.

    bpftrace reads the maps after the tick fired, so they hold at least what was counted by `boot_ns`.
    """

    boot_ns: int
    t: float
    wall: float
    lost_events: int
    maps: dict[str, dict[str, int]]


def program() -> str:
    """The bpftrace program, whole."""
    return _FAULT + _READAHEAD + _TICK


def parse_line(line: str) -> dict[str, Any] | None:
    """One line of `bpftrace -f json`; None for the blank lines between records and for plain text."""
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def tables_of(maps: dict[str, dict[str, int]], inodes: Set[int]) -> dict[str, list[dict[str, Any]]]:
    """Running totals of these inodes together, with the flag words spelled out."""
    faults = _of_inodes(maps.get("@fault", {}), inodes)
    windows = _of_inodes(maps.get("@ra", {}), inodes)
    return {
        "filemap_fault": [_fault(words, count) for words, count in faults.items()],
        "page_cache_ra_order": [{"pages": pages, "count": count} for (pages,), count in windows.items()],
    }


def _of_inodes(rows: dict[str, int], inodes: Set[int]) -> Counter[tuple[int, ...]]:
    """Counts by what follows the inode in a map's key."""
    counted: Counter[tuple[int, ...]] = Counter()
    for key, count in rows.items():
        inode, *words = map(int, key.split(","))
        if inode in inodes:
            counted[tuple(words)] += count
    return counted


def _fault(words: tuple[int, ...], count: int) -> dict[str, Any]:
    vm_flags, fault_flags, ra_pages = words
    return {
        "vm_flags": vm_flags, "vm_flag_names": decode(vm_flags, VM_FLAGS), "fault_flags": fault_flags,
        "fault_flag_names": decode(fault_flags, FAULT_FLAGS), "ra_pages": ra_pages, "count": count,
    }  # fmt: skip


class Bpftrace:
    """The tracer of one machine state; `excerpt` gives a trial the ticks around its measured part."""

    name = "bpftrace"

    def __init__(self, directory: Path, children: Children) -> None:
        self._script = directory / "faults.bt"
        self._children = children
        self._process: Process[bytes] | None = None
        self._maps: dict[str, dict[str, int]] = {}
        self._ticks: list[Tick] = []
        self._ticked = threading.Condition()
        self._lost_events = 0
        self._text: list[str] = []
        self._said_all = False
        self.reason: str | None = None

    def start(self) -> None:
        """Attach, and return at the first tick; what prevents it is kept in `reason`."""
        self.begin()
        self.wait_until_attached()

    def begin(self) -> None:
        """Begin to attach, which takes seconds; other preparations may go on meanwhile."""
        if not shutil.which("bpftrace"):
            self.reason = "bpftrace is not installed"
            return
        self._script.write_text(program())
        argv = ["bpftrace", "-f", "json", str(self._script)]
        self._process = self._children.start(argv, stdout=PIPE, stderr=STDOUT)
        threading.Thread(target=self._read, daemon=True).start()

    def wait_until_attached(self) -> None:
        """Return at the first tick, at once if that has been; nothing that is measured may run before."""
        if self._process is None or self.reason:
            return
        with self._ticked:
            # Not `_dead`: its last words may still lie unread in the pipe, and they are the reason.
            attached = self._ticked.wait_for(lambda: bool(self._ticks) or self._said_all, _ATTACH_SECONDS)
        if not attached or not self._ticks:
            self.stop()
            self.reason = f"bpftrace did not attach: {self._text[-1] if self._text else 'it said nothing'}"

    def stop(self) -> None:
        """Detach."""
        if self._process:
            self._children.interrupt(self._process)

    def wait_for_tick(self) -> None:
        """Return after a tick that fired later than this call: everything before it is then counted."""
        if self._process is None or self.reason:
            return
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        with self._ticked:
            self._ticked.wait_for(lambda: self._dead() or self._ticks[-1].boot_ns > now, 8 * TICK_SECONDS)

    def excerpt(self, inodes: Set[int], start: float, path: Path) -> Outcome:
        """Write the ticks from the last one before `start` (CLOCK_MONOTONIC) to now; forget older ones."""
        if self._process is None or self.reason:
            return Outcome("missing", self.reason or "bpftrace was not started")
        with self._ticked:
            before = [tick for tick in self._ticks if tick.t <= start][-1:]
            self._ticks = before + [tick for tick in self._ticks if tick.t > start]
            ticks = list(self._ticks)
        rows = ({"t": tick.t, "wall": tick.wall, "lost_events": tick.lost_events, **tables_of(tick.maps, inodes)}
                for tick in ticks)  # fmt: skip
        lost = ticks[-1].lost_events - ticks[0].lost_events if ticks else 0
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        if self._dead():
            return Outcome("failed", "bpftrace died while trials ran", lost, (path,))
        if lost:
            return Outcome("partial", f"bpftrace lost {lost} events", lost, (path,))
        return Outcome("ok", None, 0, (path,))

    def _dead(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for raw in open(self._process.stdout.fileno(), "rb", closefd=False):  # noqa: SIM115 - buffered view of it
            self._take(raw.decode(errors="replace").strip())
        self._process.wait()  # so that whoever is told finds it dead
        with self._ticked:
            self._said_all = True
            self._ticked.notify_all()

    def _take(self, line: str) -> None:
        data = parse_line(line)
        if data is None:
            lost = _LOST.search(line)
            self._lost_events += int(lost.group(1)) if lost else 0
            self._text += [line] if line else []
        elif data.get("type") == "map":
            self._maps |= {name: _flatten(rows) for name, rows in data["data"].items()}
        elif data.get("type") == "lost_events":
            self._lost_events += int(data["data"]["events"])
        elif data.get("type") == "printf" and str(data["data"]).startswith("TICK "):
            with self._ticked:
                boot_ns = int(data["data"].split()[1])
                self._ticks.append(Tick(boot_ns, time.monotonic(), time.time(), self._lost_events, dict(self._maps)))
                self._ticked.notify_all()


def _flatten(rows: Any) -> dict[str, int]:
    """An empty map prints as {}; keys of several parts are joined by commas."""
    return {str(key): int(count) for key, count in rows.items()} if isinstance(rows, dict) else {}
