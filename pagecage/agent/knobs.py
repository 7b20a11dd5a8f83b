"""Queue settings that a trial changes are written down first, so that even a killed harness can be undone."""

from __future__ import annotations

import json
from pathlib import Path

from pagecage.agent.device import Disk, read_knobs, write_knob
from pagecage.errors import HostError


def chosen(text: str | None) -> str | None:
    """The value of a knob that shows its choices ("[none] mq-deadline" is none), or the text itself."""
    return text[text.index("[") + 1 : text.index("]")] if text and "[" in text else text


class KnobJournal:
    """What to restore on which disk, kept in a file of the spool until it is restored."""

    def __init__(self, spool: Path) -> None:
        self._path = spool / "knobs.json"

    def set(self, disk: Disk, knob: str, value: str) -> None:
        """Remember the present value, once, and set the new one. Raises HostError when the kernel refuses."""
        present = chosen(read_knobs(disk).get(knob))
        if present == value:
            return
        before = self._saved()
        if present is not None:
            saved = {name: dict(knobs) for name, knobs in before.items()}
            saved.setdefault(disk.name, {}).setdefault(knob, present)
            self._path.write_text(json.dumps(saved))
        try:
            write_knob(disk, knob, value)
        except HostError:
            if chosen(read_knobs(disk).get(knob)) == present:  # refused: there is nothing to put back
                self._path.write_text(json.dumps(before))
            raise

    def restore(self) -> list[str]:
        """Put back what can be, forget the rest and tell it: a disk that is gone must not stop every later start."""
        told = []
        for name, knobs in self._saved().items():
            for knob, value in knobs.items():
                try:
                    write_knob(Disk(name, "", f"/dev/{name}", "", ""), knob, value)
                except HostError as error:
                    told.append(f"{name}'s {knob} could not be put back to {value}: {error.message}")
        self._path.unlink(missing_ok=True)
        return told

    def _saved(self) -> dict[str, dict[str, str]]:
        try:
            saved: dict[str, dict[str, str]] = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return saved
