from __future__ import annotations

from tests.order.conftest import on_disk

__all__ = ["on_disk"]
