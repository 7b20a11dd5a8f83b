"""Lies about the agent's own instruments: its sampler, its clocks and its files of data."""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pagecage.agent.collectors.sampler import Sampler
from reliability.mutants.kernel import OTHER_MAJ_MIN

Set = Callable[[Any, str, Any], None]
Row = dict[str, Any]
STEP_SECONDS, SHIFT_SECONDS = 3600.0, 0.25
_SLOW = 0.5


class Instruments:
    """The instruments of one simulated trial, with a lie that begins at a moment.

    `outer_seconds` is time that passed on the outer host alone.
    """

    def __init__(self, root: Path, set_: Set, name: str, moment: str) -> None:
        self._root, self._set, self._name, self._moment = root, set_, name, moment
        self._is_lying, self._kept = False, Row()
        self.outer_seconds = 0.0
        self._time, self._monotonic, self._sample = time.time, time.monotonic, Sampler._sample

    def make(self) -> None:
        """Let samples stand still while the machine does, and install what lies from the start."""
        this = self

        def sample(one: Sampler) -> Row:
            while (this._root / "paused").exists():
                time.sleep(0.02)
            return this._lied(this._sample(one))

        self._set(Sampler, "_sample", sample)
        if self._name == "samples of another disk":
            made = Sampler.__init__

            def on_another(one: Sampler, context: Any) -> None:
                made(one, context)
                one._maj_min = OTHER_MAJ_MIN

            self._set(Sampler, "__init__", on_another)

    def at(self, moment: str) -> None:
        """Begin to lie at the moment; `middle` is a quarter of a second after `go`."""
        if moment == "go" and self._moment == "middle":
            self._moment_seconds = self._monotonic() + SHIFT_SECONDS
        if moment != self._moment:
            return
        self._is_lying = True
        begin = self._monotonic()
        if self._name == "wall clock steps":
            self._set(time, "time", lambda: self._time() + STEP_SECONDS)
        if self._name == "monotonic clock is slow":
            self._set(time, "monotonic", lambda: begin + _SLOW * (self._monotonic() - begin))
        if self._name == "guest stopped with its clock":
            self.outer_seconds = 2.0

    def _lied(self, row: Row) -> Row:
        due = getattr(self, "_moment_seconds", None)
        if due is not None and self._monotonic() >= due and not self._is_lying:
            self._moment = "now"
            self.at("now")
        if not self._is_lying:
            self._kept = row
            return row
        match self._name:
            case "sampler stops":
                raise SystemExit
            case "sampler freezes":
                return {**self._kept, "t": row["t"], "wall": row["wall"]}
            case "sampler repeats":
                return dict(self._kept)
            case "sampler's clock is shifted":
                return {**row, "t": row["t"] + 1.0}
            case "sampler counts half":
                halved = {key: value // 2 for key, value in row["io"].items()}
                return {**row, "io": halved}
        return row


def write_sum(file: Path) -> None:
    file.with_name(f"{file.name}.crc").write_text(str(zlib.crc32(file.read_bytes())))


def spoil_data(name: str, file: Path) -> None:
    """Replace the content of a dataset; with `, new checksum` also what it is compared with."""
    name, _, is_resummed = name.partition(", ")
    size = file.stat().st_size
    contents: Mapping[str, Callable[[], bytes]] = {
        "sparse": lambda: b"",
        "compressible": lambda: b"0123456789abcdef" * (size // 16),
        "duplicate": lambda: file.read_bytes()[:4096] * (size // 4096),
        "zeros": lambda: bytes(size),
    }
    content = contents[name]()
    file.write_bytes(content)
    if not content:
        with file.open("r+b") as opened:
            opened.truncate(size)
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    if is_resummed:
        write_sum(file)


def instruments_file(root: Path, plant: str, moment: str, conduct: Mapping[str, Any]) -> None:
    text = {"plant": plant, "moment": moment, "conduct": dict(conduct)}
    (root / "lie.json").write_text(json.dumps(text))
