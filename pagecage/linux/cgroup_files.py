"""Counters and limits of a cgroup, by the names of cgroup v2.

Names are those of Documentation/admin-guide/cgroup-v2.rst. Where a controller is on a hierarchy of
version 1, the same figures are read from and written to that hierarchy's files
(Documentation/admin-guide/cgroup-v1/memory.rst, blkio-controller.rst, cpuacct.rst and
scheduler/sched-bwc.rst).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pagecage.linux import cgroup as cgroups
from pagecage.linux.cgroup import Cgroup, ancestors, own_cgroup
from pagecage.linux.procfs import (
    open_text,
    parse_flat_keyed,
    parse_limits,
    parse_nested_keyed,
    parse_pressure,
    pread_text,
    read_text,
)
from pagecage.model.cage import IO_MAX_KEY

HITS = "memory.hits"
"""Key of the number of times that an imposed memory limit was met (memory.events, failcnt)."""
_UNLIMITED_BYTES = 1 << 62  # version 1 shows "no limit" as the largest multiple of the page size
V1_IO_FILE: Mapping[str, str] = {
    "rbps": "blkio.throttle.read_bps_device",
    "wbps": "blkio.throttle.write_bps_device",
    "riops": "blkio.throttle.read_iops_device",
    "wiops": "blkio.throttle.write_iops_device",
}
"""Files of version 1 by the keys of io.max."""
_V1_IO_OPERATION = {"Read": "r", "Write": "w", "Discard": "d"}


_Texts = Sequence["str | None"]  # quoted for Python 3.9, which evaluates it
"""The texts of several files; None for one that cannot be read."""


# --- Counters -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """The files of a figure, each in the directory of a controller, and their common parser."""

    files: tuple[tuple[str, str], ...]
    parse: Callable[[_Texts], Any]

    def paths(self, cgroup: Cgroup) -> list[Path]:
        """Return the files that may exist; those of an absent hierarchy are left out."""
        places = ((getattr(cgroup, controller), name) for controller, name in self.files)
        return [place / name for place, name in places if place is not None]


def _first(parse: Callable[[str], Any]) -> Callable[[_Texts], Any]:
    """Return the parser of a single file; the result is None if the file is missing."""
    return lambda texts: None if texts[0] is None else parse(texts[0])


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


_V2_PARSER: Mapping[str, Callable[[str], Any]] = {
    "memory.stat": parse_flat_keyed,
    "memory.events": parse_flat_keyed,
    "cpu.stat": parse_flat_keyed,
    "memory.current": _number,
    "memory.peak": _number,
    "memory.swap.current": _number,
    "cpu.pressure": parse_pressure,
    "io.pressure": parse_pressure,
    "memory.pressure": parse_pressure,
    "io.stat": parse_nested_keyed,
}
COUNTERS = tuple(_V2_PARSER)
"""The counters that records keep of a cgroup, by the names of their files in version 2."""
_V2_EVENTS = dict.fromkeys(("memory.events.local", "memory.swap.events"), parse_flat_keyed)
COUNTERS_AND_EVENTS = (*COUNTERS, *_V2_EVENTS)
"""The same, and two files of events that version 1 has no counterpart of."""


def _memory_stat(text: str) -> dict[str, int]:
    """Rename version 1's `total_*`, which include child groups as version 2's counters do."""
    counted = parse_flat_keyed(text)
    total = {
        key.removeprefix("total_"): n for key, n in counted.items() if key.startswith("total_")
    }
    renamed = {"rss": "anon", "cache": "file", "mapped_file": "file_mapped", "dirty": "file_dirty"}
    renamed |= {"writeback": "file_writeback", "rss_huge": "anon_thp"}
    return {renamed.get(key, key): n for key, n in total.items()}


def _memory_events(texts: _Texts) -> dict[str, int] | None:
    """Return the failed charges and the OOM kills.

    A charge fails at the limit on memory or, where swap is closed, at the one on memory and swap
    (mm/memcontrol.c, try_charge_memcg).
    """
    *failures, control = texts
    counts = [int(text) for text in failures if text is not None]
    kills = {k: n for k, n in parse_flat_keyed(control or "").items() if k == "oom_kill"}
    return {"max": sum(counts), **kills} if counts else None


def _swap_current(text: str) -> int | None:
    return parse_flat_keyed(text).get("total_swap")


def _v1_io_stat(texts: _Texts) -> dict[str, dict[str, int]] | None:
    """Return io.stat from `MAJ:MIN Read N` lines of bytes and of I/Os."""
    if None in texts:
        return None
    table: dict[str, dict[str, int]] = {}
    for text, unit in ((texts[0], "bytes"), (texts[1], "ios")):
        for words in map(str.split, (text or "").splitlines()):
            if len(words) == 3 and words[1] in _V1_IO_OPERATION:  # the last line is a total
                key = f"{_V1_IO_OPERATION[words[1]]}{unit}"
                table.setdefault(words[0], {})[key] = int(words[2])
    return table


def _v1_cpu_stat(texts: _Texts) -> dict[str, int] | None:
    """Return cpu.stat in microseconds from cpuacct.usage and cpu.stat, which count nanoseconds."""
    found: dict[str, int] = {}
    for text in filter(None, texts):
        if text.strip().isdigit():
            found["usage_usec"] = int(text) // 1000
            continue
        counted = parse_flat_keyed(text)
        if "throttled_time" in counted:
            counted["throttled_usec"] = counted.pop("throttled_time") // 1000
        found |= counted
    return found or None


_V1_SOURCES: Mapping[str, tuple[str, _Source]] = {
    "memory.stat": ("memory", _Source((("memory", "memory.stat"),), _first(_memory_stat))),
    "memory.events": (
        "memory",
        _Source(
            (
                ("memory", "memory.failcnt"),
                ("memory", "memory.memsw.failcnt"),
                ("memory", "memory.oom_control"),
            ),
            _memory_events,
        ),
    ),
    "memory.current": (
        "memory",
        _Source((("memory", "memory.usage_in_bytes"),), _first(_number)),
    ),
    "memory.peak": (
        "memory",
        _Source((("memory", "memory.max_usage_in_bytes"),), _first(_number)),
    ),
    "memory.swap.current": ("memory", _Source((("memory", "memory.stat"),), _first(_swap_current))),
    "io.stat": (
        "blkio",
        _Source(
            (
                ("blkio", "blkio.throttle.io_service_bytes_recursive"),
                ("blkio", "blkio.throttle.io_serviced_recursive"),
            ),
            _v1_io_stat,
        ),
    ),
    # The unified hierarchy counts CPU time without a controller (cgroup-v2.rst, "CPU").
    "cpu.stat": (
        "cpu",
        _Source(
            (("cpuacct", "cpuacct.usage"), ("cpu", "cpu.stat"), ("unified", "cpu.stat")),
            _v1_cpu_stat,
        ),
    ),
}


def _source(cgroup: Cgroup, name: str) -> _Source:
    """Return the source of a counter or limit in this group's hierarchies."""
    controller, v1 = _V1_SOURCES.get(name, ("unified", None))
    if v1 is not None and getattr(cgroup, controller) is not None:
        return v1
    return _Source((("unified", name),), _first({**_V2_PARSER, **_V2_EVENTS}[name]))


def counter_files(cgroup: Cgroup) -> dict[str, list[str]]:
    """Return the files of each counter, as records name them."""
    return {name: [str(path) for path in _source(cgroup, name).paths(cgroup)] for name in COUNTERS}


class CounterFiles:
    """The counter files of a cgroup, opened once for repeated reads."""

    def __init__(self, cgroup: Cgroup, names: Sequence[str] = COUNTERS) -> None:
        self._sources = {name: _source(cgroup, name) for name in names}
        self._open = {
            name: [open_text(path) for path in source.paths(cgroup)]
            for name, source in self._sources.items()
        }

    def read(self, name: str) -> Any:
        """Return a counter file's parsed content; None if this kernel lacks it or it is gone."""
        texts = [pread_text(descriptor) for descriptor in self._open[name]]
        return None if texts.count(None) == len(texts) else self._sources[name].parse(texts)

    def close(self) -> None:
        """Close the files."""
        for descriptors in self._open.values():
            for descriptor in filter(None, descriptors):
                os.close(descriptor)


def read_counters(cgroup: Cgroup, *names: str) -> dict[str, Any]:
    """Return these counters of a cgroup, or all that records keep, by file name.

    Returns None for a file that this kernel lacks.
    """
    files = CounterFiles(cgroup, names or COUNTERS)
    try:
        return {name: files.read(name) for name in names or COUNTERS}
    finally:
        files.close()


# --- Limits ---------------------------------------------------------------------------------------


def _memory_limit(text: str) -> str:
    return "max" if int(text) >= _UNLIMITED_BYTES else text.strip()


def _swap_limit(texts: Sequence[str]) -> str:
    """Return the limit on swap from memory.swappiness, then memory.memsw or /proc/swaps.

    With a swappiness of 0 the limit on memory swaps nothing out. Without swap accounting nothing
    else is a limit, unless the machine has no swap, whose list is then a header.
    """
    swappiness, *counted = texts
    if swappiness.strip() == "0":
        return "0"
    if len(counted) == 1:
        return "0" if len(counted[0].splitlines()) == 1 else "max"
    both, memory = (int(text) for text in counted)
    return "max" if both >= _UNLIMITED_BYTES else str(both - memory)


def _v1_limits(name: str, texts: Sequence[str], maj_min: str) -> dict[str, str]:
    """Return the limits of a file of version 1; nothing if its text is gone."""
    if name == "io.max":
        found = {}
        for number, key in enumerate(V1_IO_FILE):
            lines = map(str.split, texts[number].splitlines())
            on_disk = {words[0]: words[1] for words in lines if len(words) > 1}
            found[f"io.max.{key}"] = on_disk.get(maj_min, "max")
        return found
    if not all(texts):
        return {}
    if name == "memory.max":
        return {name: _memory_limit(texts[0])}
    if name == "memory.swap.max":
        return {name: _swap_limit(texts)}
    quota, period = (text.strip() for text in texts)
    return {name: f"{'max' if int(quota) < 0 else quota} {period}"}


_V2_LIMITS = ("memory.max", "memory.high", "memory.swap.max", "cpu.max", "io.max")
_V1_LIMITS = {
    "memory.max": ("memory", ("memory.limit_in_bytes",)),
    "memory.high": ("memory", ()),
    "memory.swap.max": (
        "memory",
        ("memory.swappiness", "memory.memsw.limit_in_bytes", "memory.limit_in_bytes"),
    ),
    "cpu.max": ("cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us")),
    "io.max": ("blkio", tuple(V1_IO_FILE.values())),
}


class LimitFiles:
    """The limit files of a cgroup, opened once for repeated reads."""

    def __init__(self, cgroup: Cgroup) -> None:
        self._is_v1 = {name: getattr(cgroup, place) for name, (place, _) in _V1_LIMITS.items()}
        self._open: dict[str, list[int | None]] = {}
        for name in _V2_LIMITS:
            opened = [open_text(path) for path in _limit_files(cgroup, name)]
            if opened and None not in opened:
                self._open[name] = opened
        self._texts: dict[str, tuple[str, ...]] = {}

    def read(self, maj_min: str) -> dict[str, str]:
        """Return limits in force, {"memory.max": text, "io.max.rbps": text}, on one disk.

        Keys whose file is missing are left out.
        """
        return self._parsed(self._read(), maj_min)

    def changed(self, maj_min: str) -> dict[str, str]:
        """Return the limits of the files whose text differs from the last call's."""
        before, self._texts = self._texts, self._read()
        changed = {name: text for name, text in self._texts.items() if before.get(name) != text}
        return self._parsed(changed, maj_min)

    def _read(self) -> dict[str, tuple[str, ...]]:
        return {
            name: tuple(pread_text(descriptor) or "" for descriptor in descriptors)
            for name, descriptors in self._open.items()
        }

    def _parsed(self, texts: Mapping[str, tuple[str, ...]], maj_min: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, text in texts.items():
            found |= (_v1_limits if self._is_v1[name] else _v2_limits)(name, text, maj_min)
        return found

    def close(self) -> None:
        """Close the files."""
        for descriptors in self._open.values():
            for descriptor in filter(None, descriptors):
                os.close(descriptor)


def _limit_files(cgroup: Cgroup, name: str) -> list[Path]:
    controller, names = _V1_LIMITS[name]
    place = getattr(cgroup, controller)
    if place is None:
        return [] if cgroup.unified is None else [cgroup.unified / name]
    if name == "memory.swap.max" and not (place / names[1]).exists():
        return [place / names[0], cgroups.PROC / "swaps"]
    return [place / file for file in names]


def _v2_limits(name: str, texts: Sequence[str], maj_min: str) -> dict[str, str]:
    if name != "io.max":
        return {name: texts[0].strip()}
    on_disk = parse_limits(texts[0]).get(maj_min, {})
    return {f"{name}.{key}": on_disk.get(key, "max") for key in IO_MAX_KEY.values()}


def read_limits(cgroup: Cgroup, maj_min: str) -> dict[str, str]:
    """Return limits in force, {"memory.max": text, "io.max.rbps": text}, without missing files."""
    files = LimitFiles(cgroup)
    try:
        return files.read(maj_min)
    finally:
        files.close()


def limited_disks(cgroup: Cgroup) -> list[str]:
    """Return the disks that have a limit on I/O in this group."""
    texts = (read_text(file) or "" for file in _limit_files(cgroup, "io.max"))
    words = (line.split() for text in texts for line in text.splitlines())
    return list(dict.fromkeys(disk for disk, *_ in filter(None, words)))


def limit_file(cgroup: Cgroup, key: str) -> Path | None:
    """Return the file of a limit by its key in read_limits(); None if this group can have none.

    For swap in version 1 it is the file that decides.
    """
    name, _, io_key = key.partition("io.max.")
    files = _limit_files(cgroup, name or "io.max")
    if len(files) == len(V1_IO_FILE) and io_key:
        return files[list(V1_IO_FILE).index(io_key)]
    if key == "memory.swap.max" and len(files) > 1:
        closed = (read_text(files[0]) or "").strip() == "0"
        return files[0] if closed else files[1]
    return files[0] if files else None


def write_io_limits(cgroup: Cgroup, maj_min: str, limits: Mapping[str, str]) -> None:
    """Write I/O limits on a disk by the keys of io.max, "max" for none.

    Raises OSError if the kernel refuses one.
    """
    if cgroup.blkio is None:
        words = " ".join(f"{key}={value}" for key, value in limits.items())
        _required(cgroup.unified, "io.max").write_text(f"{maj_min} {words}\n")
        return
    for key, value in limits.items():
        (cgroup.blkio / V1_IO_FILE[key]).write_text(
            f"{maj_min} {'0' if value == 'max' else value}\n"
        )


def _required(directory: Path | None, name: str) -> Path:
    if directory is None:
        raise FileNotFoundError(2, "no hierarchy has this file", name)
    return directory / name


# --- Imposed limits -----------------------------------------------------------------------------


def read_imposed_limits(maj_min: str) -> dict[str, dict[str, str]]:
    """Return the limits on this process by cgroup, nearest first, without those that are `max`.

    They hold for a trial without a cgroup of its own: a container's, a session's, a CI runner's.
    """
    found: dict[str, dict[str, str]] = {}
    own = own_cgroup()
    alone = [
        Cgroup(**{f.name: path}) for f in fields(own) if (path := getattr(own, f.name)) is not None
    ]
    for cgroup in (*alone, *ancestors(own)):
        limits = {k: v for k, v in read_limits(cgroup, maj_min).items() if not v.startswith("max")}
        events = read_counters(cgroup, "memory.events")["memory.events"] or {}
        if limits:
            hits = {HITS: str(events["max"])} if "max" in events else {}
            place = str(cgroup.directories[0])
            found[place] = found.get(place, {}) | limits | hits
    return found
