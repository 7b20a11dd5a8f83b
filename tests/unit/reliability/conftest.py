"""The fake machine of tests/order."""

from __future__ import annotations

from tests.order.conftest import machine, on_disk

__all__ = ["machine", "on_disk"]
