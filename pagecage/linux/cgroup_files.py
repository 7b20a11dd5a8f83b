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


_FAILURES = tuple(
    ("memory", f"memory.{name}") for name in ("failcnt", "memsw.failcnt", "oom_control")
)
_IO = tuple(
    ("blkio", f"blkio.throttle.{name}_recursive") for name in ("io_service_bytes", "io_serviced")
)
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


def _swap_limit(texts: Sequence[str]) -> str:
    """Return the limit on swap. Without its accounting, only a machine without swap has one: 0."""
    swappiness, *counted = texts
    if swappiness.strip() == "0":
        return "0"
    if len(counted) == 1:
        return "0" if len(counted[0].splitlines()) == 1 else "max"
    both, memory = map(int, counted)
    return "max" if both >= _UNLIMITED_BYTES else str(both - memory)


def _v1_limits(name: str, texts: Sequence[str], maj_min: str) -> dict[str, str]:
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
        return {name: "max" if int(texts[0]) >= _UNLIMITED_BYTES else texts[0].strip()}
    if name == "memory.swap.max":
        return {name: _swap_limit(texts)}
    quota, period = (text.strip() for text in texts)
    return {name: f"{'max' if int(quota) < 0 else quota} {period}"}


def _v2_limits(name: str, texts: Sequence[str], maj_min: str) -> dict[str, str]:
    if name != "io.max":
        return {name: texts[0].strip()}
    on_disk = parse_limits(texts[0]).get(maj_min, {})
    return {f"{name}.{key}": on_disk.get(key, "max") for key in IO_MAX_KEY.values()}


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
"""The controller of each limit in version 1, and its files there."""


class LimitFiles(_OpenFiles):
    """The limit files of a cgroup."""

    def __init__(self, cgroup: Cgroup) -> None:
        super().__init__({name: _limit_files(cgroup, name) for name in _V1_LIMITS})
        self._parsers = {
            name: _v1_limits if place in cgroup.by_controller else _v2_limits
            for name, (place, _) in _V1_LIMITS.items()
            if self._open[name] and None not in self._open[name]
        }
        self._before: dict[str, list[str]] = {}

    def read(self, maj_min: str, *, only_changed: bool = False) -> dict[str, str]:
        """Return limits in force, {"memory.max": text, "io.max.rbps": text}, on one disk.

        Keys whose file is missing are left out; with `only_changed` also those whose file has the
        same text as in the last such call.
        """
        found: dict[str, str] = {}
        for name, parse in self._parsers.items():
            texts = [text or "" for text in self.texts(name)]
            if not only_changed or self._before.get(name) != texts:
                found |= parse(name, texts, maj_min)
            if only_changed:
                self._before[name] = texts
        return found


def _limit_files(cgroup: Cgroup, name: str) -> list[Path]:
    controller, names = _V1_LIMITS[name]
    place = getattr(cgroup, controller)
    if place is None:
        return [] if cgroup.unified is None else [cgroup.unified / name]
    if name == "memory.swap.max" and not (place / names[1]).exists():
        return [place / names[0], cgroups.PROC / "swaps"]
    return [place / file for file in names]


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


def write_io_limits(cgroup: Cgroup, maj_min: str, limits: Mapping[str, str]) -> None:
    """Write I/O limits by the keys of io.max, "max" for none. Raises OSError if one is refused."""
    if cgroup.blkio is None:
        if cgroup.unified is None:
            raise FileNotFoundError(2, "no hierarchy has this file", "io.max")
        words = " ".join(f"{key}={value}" for key, value in limits.items())
        (cgroup.unified / "io.max").write_text(f"{maj_min} {words}\n")
        return
    for key, value in limits.items():
        (cgroup.blkio / V1_IO_FILE[key]).write_text(
            f"{maj_min} {'0' if value == 'max' else value}\n"
        )


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
