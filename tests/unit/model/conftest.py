"""A folder with definitions, as a fixture."""

from __future__ import annotations

from tests.builders.definitions import top

__all__ = ["top"]
