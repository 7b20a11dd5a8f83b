"""What a trial changes of a machine is written down first, so that even a killed harness can be undone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pagecage.agent.kernelfs import read_text
from pagecage.errors import HostError


class Journal:
    """The values that settings had, in a file of the spool until they are put back."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def remember(self, read: Callable[[], Mapping[str, int]]) -> None:
        """Write down what is there, once: what a trial has set since is nothing to go back to."""
        if not self._path.exists():
            self._path.write_text(json.dumps(read()))

    def put_back(self, what: str, write: Callable[[Mapping[str, Any]], None]) -> list[str]:
        """Hand what was remembered to `write`; a sentence where that fails, and the journal is then kept."""
        text = read_text(self._path)
        if text is None:
            return []
        try:
            write(json.loads(text))
        except (HostError, ValueError, LookupError, TypeError) as error:
            return [f"{what} could not be put back: {error}"]
        self._path.unlink(missing_ok=True)
        return []


def write_number(path: Path, value: int, name: str) -> None:
    """Write a setting of the kernel. Raises HostError, which calls it `name`, when it is refused."""
    try:
        path.write_text(str(value))
    except OSError as error:
        raise HostError(f"{name} cannot be set to {value}: {error.strerror}", "use HOST=vm") from None
