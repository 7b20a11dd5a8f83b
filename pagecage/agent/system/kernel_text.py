"""Parsers of the kernel's text formats. A missing file is None, because absence is not zero."""

from __future__ import annotations

import os
from pathlib import Path

_PIECE_BYTES = 1 << 16
Pressure = dict[str, dict[str, float]]


def read_text(path: Path) -> str | None:
    """Return a kernel file's text.

    Returns None if this kernel lacks the file or refuses to read it (PSI when disabled). A trial
    reads over a hundred; a file object for each would take half of that time.
    """
    descriptor = open_text(path)
    if descriptor is None:
        return None
    try:
        return b"".join(iter(lambda: os.read(descriptor, _PIECE_BYTES), b"")).decode()
    except OSError:
        return None
    finally:
        os.close(descriptor)


def open_text(path: Path) -> int | None:
    """Return a descriptor for repeated reads with pread_text(); None if it cannot be opened."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def pread_text(descriptor: int | None) -> str | None:
    """Return the present text of an open kernel file; None if it cannot be read."""
    try:
        return None if descriptor is None else os.pread(descriptor, _PIECE_BYTES, 0).decode()
    except OSError:
        return None


def parse_flat_keyed(text: str) -> dict[str, int]:
    """Parse `KEY VALUE` lines (memory.stat, memory.events, cpu.stat, /proc/vmstat).

    Skip other values than numbers.
    """
    pairs = (line.split() for line in text.splitlines())
    return {
        pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].lstrip("-").isdigit()
    }


def parse_nested_keyed(text: str) -> dict[str, dict[str, int]]:
    """Parse `KEY SUB=VALUE ...` lines (io.stat).

    A device that was never busy is a bare key, and empty here.
    """
    table: dict[str, dict[str, int]] = {}
    for line in text.splitlines():
        key, *pairs = line.split() or [""]
        if key:
            split = (pair.partition("=") for pair in pairs)
            table[key] = {name: int(value) for name, _, value in split if value.isdigit()}
    return table


def parse_limits(text: str) -> dict[str, dict[str, str]]:
    """Parse io.max: {"254:16": {"rbps": "20000000", "wbps": "max", ...}}."""
    table: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        key, *pairs = line.split() or [""]
        if key:
            table[key] = {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
    return table


def parse_pressure(text: str) -> Pressure:
    """Parse PSI (Documentation/accounting/psi.rst).

    The result is {"some": {"avg10": .., "total": microseconds}, "full": {...}}.
    """
    table: Pressure = {}
    for line in text.splitlines():
        kind, *pairs = line.split() or [""]
        if kind:
            table[kind] = {
                name: float(value) for name, _, value in (pair.partition("=") for pair in pairs)
            }
    return table


def parse_meminfo(text: str) -> dict[str, int]:
    """Parse /proc/meminfo: {"MemTotal": kB, ...}."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {key: int(rest.split()[0]) for key, colon, rest in pairs if colon and rest.split()}
