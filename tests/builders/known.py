"""Values that may be absent by their type, and are there in a test."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def known(value: T | None) -> T:
    """Return a value. Fails if it is None."""
    assert value is not None
    return value
