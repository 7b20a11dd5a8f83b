"""The fixtures of tests/order: the fake machine, and a folder on the checkout's disk."""

from __future__ import annotations

from tests.order.conftest import machine, on_disk

__all__ = ["machine", "on_disk"]
