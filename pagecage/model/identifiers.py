"""Identifiers in plans, records, frames and folders: their patterns, and the check of a value.

Many of them become parts of paths and of units' names, and most files that hold them may come from
other people. None contains a slash or a control character, and none begins with a dot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pagecage.errors import PagecageError

DEFINITION = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")
"""The stem of an experiment's or a cage's file."""
EXPERIMENT = re.compile(r"[a-z0-9][a-z0-9-]{0,199}")
"""An experiment in a plan; that of a replay has the program's name."""
RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+=-]{0,239}")
TRIAL_ID = re.compile(r"[a-z0-9][A-Za-z0-9_-]{0,149}")
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
DISK = re.compile(r"[a-z][a-z0-9]{0,10}")
"""A disk that a cage names; part of a serial number of 20 bytes in the guest (virtio-blk)."""
COLLECTOR = re.compile(r"[a-z][a-z0-9_]{0,30}")
"""A collector of a definition: the beginning of its responses, and the stem of its trace."""
TRACE = re.compile(r"[a-z][a-z0-9_-]{0,60}\.[a-z]{1,8}")
"""The file of a collector. trace_names() has those that a trial can have."""
TEXT = re.compile(r"[^\x00-\x1f\x7f]{1,1000}")
"""A level, a factor, or the name of a cage, which is shown and part of no path."""
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,60}")
"""A phase, or the name of a setting."""
SIZE = re.compile(r"[a-z]{1,20}|[0-9][0-9.]{0,20}([KMGT]i|[kMG])?B")
"""A size of a definition, or the bytes of a dataset that fits a time."""
BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
STATE_ID = re.compile(r"[0-9a-f]{1,64}(-[0-9]{1,20})?")
SHA256 = re.compile(r"[0-9a-f]{64}")
MOST_ATTEMPTS = 10_000
"""Attempts at one trial."""
_HINT = "docs/FORMAT.md lists the keys"


def is_identifier(value: Any, pattern: re.Pattern[str]) -> bool:
    """Return whether a value of a file or a frame is text of this pattern."""
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def is_attempt(value: Any) -> bool:
    """Return whether a value is the number of an attempt, from 1."""
    return type(value) is int and 1 <= value <= MOST_ATTEMPTS


def require_identifiers(
    data: Mapping[str, Any], patterns: Mapping[str, re.Pattern[str]], where: str
) -> None:
    """Raise PagecageError for a value that does not have its key's pattern; None is accepted."""
    for key, pattern in patterns.items():
        value = data.get(key)
        if value is not None and not is_identifier(value, pattern):
            shown = repr(value)[:80]
            raise PagecageError(f"{where}: {key!r} is {shown}, which is not an identifier", _HINT)


def require_treatment(treatment: Any, where: str) -> None:
    """Raise PagecageError unless these are levels by factor."""
    if not isinstance(treatment, Mapping) or not all(
        is_identifier(word, TEXT) for pair in treatment.items() for word in pair
    ):
        raise PagecageError(f"{where}: 'treatment' does not hold levels by factor", _HINT)
