"""Counters and limits of a cgroup, by the names of cgroup v2.

Names are those of Documentation/admin-guide/cgroup-v2.rst. Where a controller is on a hierarchy of
version 1, the same figures are read from and written to that hierarchy's files
(Documentation/admin-guide/cgroup-v1/memory.rst, blkio-controller.rst, cpuacct.rst and
scheduler/sched-bwc.rst).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
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
from pagecage.model.json_codec import Json

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
        places = cgroup.by_controller
        return [places[one] / name for one, name in self.files if one in places]


def _file(controller: str, name: str, parse: Callable[[str], Any]) -> _Source:
    return _Source(
        ((controller, name),), lambda texts: None if texts[0] is None else parse(texts[0])
    )


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


_V2 = {
    name: _file("unified", name, parse)
    for names, parse in (
        (("memory.stat", "memory.events", "cpu.stat"), parse_flat_keyed),
        (("memory.current", "memory.peak", "memory.swap.current"), _number),
        (("cpu.pressure", "io.pressure", "memory.pressure"), parse_pressure),
        (("io.stat",), parse_nested_keyed),
        (("memory.events.local", "memory.swap.events"), parse_flat_keyed),
    )
    for name in names
}
COUNTERS = tuple(_V2)[:-2]
"""The counters that records keep of a cgroup, by the names of their files in version 2."""
COUNTERS_AND_EVENTS = tuple(_V2)
"""The same, and two files of events that version 1 has no counterpart of."""
_LIMITS = ("memory.max", "memory.high", "memory.swap.max", "cpu.max", "io.max")
_V2 |= {name: _file("unified", name, str.strip) for name in _LIMITS[:-1]}
_V2["io.max"] = _file("unified", "io.max", parse_limits)


def _memory_stat(text: str) -> dict[str, int]:
    """Rename version 1's `total_*`, which include child groups as version 2's counters do."""
    renamed = {"rss": "anon", "cache": "file", "mapped_file": "file_mapped", "dirty": "file_dirty"}
    renamed |= {"writeback": "file_writeback", "rss_huge": "anon_thp"}
    totals = ((k[6:], n) for k, n in parse_flat_keyed(text).items() if k.startswith("total_"))
    return {renamed.get(key, key): n for key, n in totals}


def _memory_events(texts: _Texts) -> dict[str, int] | None:
    """Return failed charges, at memory.max or with swap closed at memsw, and OOM kills."""
    *failures, control = texts
    counts = [int(text) for text in failures if text is not None]
    kills = {k: n for k, n in parse_flat_keyed(control or "").items() if k == "oom_kill"}
    return {"max": sum(counts), **kills} if counts else None


def _v1_io_stat(texts: _Texts) -> dict[str, dict[str, int]] | None:
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


def _swapped(text: str) -> int | None:
    return parse_flat_keyed(text).get("total_swap")


def _if_whole(parse: Callable[..., str]) -> Callable[[_Texts], str | None]:
    """Return a parser of a limit in several files; it is unknown while one of them is empty."""
    return lambda texts: parse(*texts) if all(texts) else None


def _memory_limit(limit: str) -> str:
    return "max" if int(limit) >= _UNLIMITED_BYTES else limit.strip()


def _swap_limit(swappiness: str, *counted: str) -> str:
    """Return the limit on swap. Without its accounting, only a machine without swap has one: 0."""
    if swappiness.strip() == "0":
        return "0"
    if len(counted) == 1:
        return "0" if len(counted[0].splitlines()) == 1 else "max"
    both, memory = map(int, counted)
    return "max" if both >= _UNLIMITED_BYTES else str(both - memory)


def _cpu_limit(quota: str, period: str) -> str:
    return f"{'max' if int(quota) < 0 else quota.strip()} {period.strip()}"


def _v1_io_max(texts: _Texts) -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, str]] = {}
    for key, text in zip(V1_IO_FILE, texts):  # noqa: B905 - of Python 3.10
        for words in map(str.split, (text or "").splitlines()):
            if len(words) > 1:
                table.setdefault(words[0], {})[key] = words[1]
    return table


_FAILURES = tuple(
    ("memory", f"memory.{name}") for name in ("failcnt", "memsw.failcnt", "oom_control")
)
_IO = tuple(
    ("blkio", f"blkio.throttle.{name}_recursive") for name in ("io_service_bytes", "io_serviced")
)
_MEMORY = tuple(
    ("memory", f"memory.{name}")
    for name in ("swappiness", "memsw.limit_in_bytes", "limit_in_bytes")
)
_QUOTA = (("cpu", "cpu.cfs_quota_us"), ("cpu", "cpu.cfs_period_us"))
# The unified hierarchy counts CPU time without a controller (cgroup-v2.rst, "CPU").
_CPU = (("cpuacct", "cpuacct.usage"), ("cpu", "cpu.stat"), ("unified", "cpu.stat"))
_V1: Mapping[str, tuple[str, _Source]] = {
    "memory.stat": ("memory", _file("memory", "memory.stat", _memory_stat)),
    "memory.events": ("memory", _Source(_FAILURES, _memory_events)),
    "memory.current": ("memory", _file("memory", "memory.usage_in_bytes", _number)),
    "memory.peak": ("memory", _file("memory", "memory.max_usage_in_bytes", _number)),
    "memory.swap.current": ("memory", _file("memory", "memory.stat", _swapped)),
    "io.stat": ("blkio", _Source(_IO, _v1_io_stat)),
    "cpu.stat": ("cpu", _Source(_CPU, _v1_cpu_stat)),
    "memory.max": ("memory", _Source(_MEMORY[-1:], _if_whole(_memory_limit))),
    "memory.high": ("memory", _Source((), lambda _: None)),
    "memory.swap.max": ("memory", _Source(_MEMORY, _if_whole(_swap_limit))),
    "cpu.max": ("cpu", _Source(_QUOTA, _if_whole(_cpu_limit))),
    "io.max": (
        "blkio",
        _Source(tuple(("blkio", name) for name in V1_IO_FILE.values()), _v1_io_max),
    ),
}
"""The controller of each figure that version 1 has, and its source there."""


def _source(cgroup: Cgroup, name: str) -> _Source:
    controller, v1 = _V1.get(name, ("", _V2[name]))
    return v1 if controller in cgroup.by_controller else _V2[name]


def counter_files(cgroup: Cgroup) -> dict[str, list[str]]:
    return {name: [str(path) for path in _source(cgroup, name).paths(cgroup)] for name in COUNTERS}


class _OpenFiles:
    def __init__(self, paths: Mapping[str, Sequence[Path]]) -> None:
        self._open = {name: [open_text(path) for path in files] for name, files in paths.items()}

    def texts(self, name: str) -> list[str | None]:
        return [pread_text(descriptor) for descriptor in self._open[name]]

    def close(self) -> None:
        for descriptors in self._open.values():
            for descriptor in filter(None, descriptors):
                os.close(descriptor)


class CounterFiles(_OpenFiles):
    """The counter files of a cgroup."""

    def __init__(self, cgroup: Cgroup, names: Sequence[str] = COUNTERS) -> None:
        self._sources = {name: _source(cgroup, name) for name in names}
        super().__init__({name: one.paths(cgroup) for name, one in self._sources.items()})

    def read(self, name: str) -> Any:
        """Return a counter file's parsed content; None if this kernel lacks it or it is gone."""
        texts = self.texts(name)
        return None if texts.count(None) == len(texts) else self._sources[name].parse(texts)


def read_counters(cgroup: Cgroup, *names: str) -> Json:
    """Return these counters of a cgroup, or all that records keep; None for a missing file."""
    with closing(CounterFiles(cgroup, names or COUNTERS)) as files:
        return {name: files.read(name) for name in names or COUNTERS}


# --- Limits ---------------------------------------------------------------------------------------


class LimitFiles(_OpenFiles):
    """The limit files of a cgroup."""

    def __init__(self, cgroup: Cgroup) -> None:
        super().__init__({name: _limit_files(cgroup, name) for name in _LIMITS})
        is_there = {name: one and None not in one for name, one in self._open.items()}
        self._sources = {name: _source(cgroup, name) for name in _LIMITS if is_there[name]}
        self._before: dict[str, list[str]] = {}

    def read(self, maj_min: str, *, only_changed: bool = False) -> dict[str, str]:
        """Return limits in force, {"memory.max": text, "io.max.rbps": text}, on one disk.

        Keys whose file is missing are left out; with `only_changed` also those whose file has the
        same text as in the last such call.
        """
        found: dict[str, str] = {}
        for name, source in self._sources.items():
            texts = [text or "" for text in self.texts(name)]
            if only_changed and self._before.get(name) == texts:
                continue
            if only_changed:
                self._before[name] = texts
            value = source.parse(texts)
            if name == "io.max":
                on_disk = value.get(maj_min, {})
                keys = IO_MAX_KEY.values()
                found |= {f"io.max.{key}": on_disk.get(key, "max") for key in keys}
            elif value is not None:
                found[name] = value
        return found


def _limit_files(cgroup: Cgroup, name: str) -> list[Path]:
    paths = _source(cgroup, name).paths(cgroup)
    if name == "memory.swap.max" and len(paths) > 1 and not paths[1].exists():
        return [paths[0], cgroups.PROC / "swaps"]
    return paths


def read_limits(cgroup: Cgroup, maj_min: str) -> dict[str, str]:
    with closing(LimitFiles(cgroup)) as files:
        return files.read(maj_min)


def limited_disks(cgroup: Cgroup) -> list[str]:
    texts = (read_text(file) or "" for file in _limit_files(cgroup, "io.max"))
    words = (line.split() for text in texts for line in text.splitlines())
    return list(dict.fromkeys(disk for disk, *_ in filter(None, words)))


def limit_file(cgroup: Cgroup, key: str) -> Path | None:
    """Return the file that decides about a key of read_limits(); None if there can be none."""
    name, _, io_key = key.partition("io.max.")
    files = _limit_files(cgroup, name or "io.max")
    if len(files) == len(V1_IO_FILE) and io_key:
        return files[list(V1_IO_FILE).index(io_key)]
    if key == "memory.swap.max" and len(files) > 1:
        closed = (read_text(files[0]) or "").strip() == "0"
        return files[0] if closed else files[1]
    return files[0] if files else None


def io_limit_writes(
    cgroup: Cgroup, maj_min: str, limits: Mapping[str, str]
) -> list[tuple[Path, str]]:
    """Return files and texts that set I/O limits by the keys of io.max, "max" for none."""
    if cgroup.blkio is not None:
        values = {key: "0" if value == "max" else value for key, value in limits.items()}
        return [(cgroup.blkio / V1_IO_FILE[k], f"{maj_min} {n}") for k, n in values.items()]
    if cgroup.unified is None:
        raise FileNotFoundError(2, "no hierarchy has this file", "io.max")
    words = " ".join(f"{key}={value}" for key, value in limits.items())
    return [(cgroup.unified / "io.max", f"{maj_min} {words}")]


def write_io_limits(cgroup: Cgroup, maj_min: str, limits: Mapping[str, str]) -> None:
    """Write I/O limits by the keys of io.max. Raises OSError if one is refused."""
    for file, text in io_limit_writes(cgroup, maj_min, limits):
        file.write_text(f"{text}\n")


# --- Imposed limits -----------------------------------------------------------------------------


def read_imposed_limits(maj_min: str) -> dict[str, dict[str, str]]:
    """Return the limits on this process by cgroup, nearest first, without those that are `max`.

    They hold for a trial without a cgroup of its own: a container's, a session's, a CI runner's.
    """
    found: dict[str, dict[str, str]] = {}
    own = own_cgroup()
    alone = [Cgroup(**{key: path}) for key, path in own.by_controller.items()]
    for cgroup in (*alone, *ancestors(own)):
        limits = {k: v for k, v in read_limits(cgroup, maj_min).items() if not v.startswith("max")}
        events = read_counters(cgroup, "memory.events")["memory.events"] or {}
        if limits:
            hits = {HITS: str(events["max"])} if "max" in events else {}
            place = str(cgroup.directories[0])
            found[place] = found.get(place, {}) | limits | hits
    return found
