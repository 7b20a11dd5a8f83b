"""A fixture with a folder of definitions."""

from __future__ import annotations

from tests.builders.definitions import top

__all__ = ["top"]
