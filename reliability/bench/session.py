"""The host that the parts of the benchmark share."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any

from reliability.bench.bed import Bed, started


class Session:
    """A host that is started when a part first needs it, and ended before a part starts its own."""

    def __init__(self, wish: str) -> None:
        self.wish = wish
        self.about: dict[str, Any] = {"host": None, "emulated": None}
        self._bed: Bed | None = None
        self._ending = ExitStack()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.leave()

    def bed(self) -> Bed:
        """Return the started host. Raises PagecageError if no host can serve."""
        if self._bed is None:
            self._bed = self._ending.enter_context(started(self.wish))
            self.about = {"host": self._bed.host.name, "emulated": self._bed.emulated}
        return self._bed

    def leave(self) -> None:
        self._bed = None
        self._ending.close()
