"""Lines of a custom collector, and the figures in them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pagecage.model.collectors import (
    MOST_FIELDS,
    FieldValues,
    LineError,
    OwnCollector,
    fields_of,
    gaps,
    parse_line,
)
from pagecage.process import Process
from pagecage.units import MIB, format_bytes, format_seconds

MOST_BYTES = 16 * MIB
"""Output after which a collector is ended, since reading more would disturb the trial."""
MOST_LINES = 100_000
"""Lines after which it is ended likewise. They are parsed when the trial is over."""
MOST_LINE_BYTES = 64 * 1024
"""A longer line is cut into pieces, none of which is a JSON object."""


@dataclass(frozen=True)
class ArrivedLine:
    """A line and its arrival (CLOCK_MONOTONIC); `data` is None if it is not a JSON object."""

    arrived: float
    text: str
    data: dict[str, Any] | None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        kept = {"text": self.text} if self.data is None else {"line": self.data}
        return {"arrived": self.arrived, **kept}


class CustomOutput:
    """A thread that reads a process's output to its end or to the bound.

    `on_flood` is called once, by the thread, when the bound is exceeded. What follows is dropped.
    """

    def __init__(self, process: Process[bytes], on_flood: Callable[[], None]) -> None:
        self._process, self._on_flood = process, on_flood
        self._lines: list[tuple[float, bytes]] = []
        self._changed = threading.Condition()
        self.is_flood = False
        self.ended_at: float | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def lines(self) -> Iterator[ArrivedLine]:
        """Yield the lines so far, without blank ones."""
        with self._changed:
            raw = list(self._lines)
        for arrived, line in raw:
            if text := line.decode(errors="replace").strip():
                try:
                    yield ArrivedLine(arrived, text, parse_line(text))
                except LineError as error:
                    yield ArrivedLine(arrived, text, None, str(error))

    def wait_for(self, mark: bytes, seconds: float) -> None:
        """Wait for a line that contains `mark`, or for the end of the output or of the time."""
        seen = 0

        def is_seen() -> bool:
            nonlocal seen
            new, seen = self._lines[seen:], len(self._lines)
            return self.ended_at is not None or any(mark in line for _, line in new)

        with self._changed:
            self._changed.wait_for(is_seen, seconds)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _read(self) -> None:
        left, number = MOST_BYTES, 0
        assert self._process.stdout is not None
        with open(self._process.stdout.fileno(), "rb", closefd=False) as buffered:
            while raw := buffered.readline(MOST_LINE_BYTES):
                left, number = left - len(raw), number + 1
                if left < 0 or number > MOST_LINES:
                    self.is_flood = True
                    self._on_flood()
                    break
                with self._changed:
                    self._lines.append((time.monotonic(), raw))
                    self._changed.notify_all()
        with self._changed:
            self.ended_at = time.monotonic()
            self._changed.notify_all()


_WORST_FIRST = ("missing", "failed", "partial", "ok")
Finding = tuple[str, str]
"""A status and a clause about the collector, `it` in the sentence."""


@dataclass(frozen=True)
class CustomEvidence:
    """Everything that is known about the data of one collector in one trial.

    `lines` are as they arrived, `values` those that have numbers. `begin` and `end` are those of
    the measured part in CLOCK_MONOTONIC. `status` is that with which it ended by itself, at
    `ended_at`; None if it ran until it was stopped. A script `lacks_totals` if it had to be killed
    before it printed its maps.
    """

    spec: OwnCollector
    lines: Sequence[ArrivedLine]
    values: Sequence[FieldValues]
    begin: float
    end: float
    status: int | None = None
    ended_at: float | None = None
    last_error_line: str | None = None
    is_flood: bool = False
    lacks_totals: bool = False
    lost_events: int = 0

    def gaps(self) -> list[float]:
        """Return the silences of the measured part that are too long, in seconds.

        The end of a collector is a finding of its own, and so is a late first line.
        """
        times = [one.t for one in self.values]
        last = self.end if self.ended_at is None else min(self.end, self.ended_at)
        first = max(self.begin, min(times, default=self.begin))
        return gaps(times, first, max(first, last), self.spec.period_seconds)


def findings(evidence: CustomEvidence) -> list[Finding]:
    found = [*_end(evidence)]
    return found + (_no_lines(evidence) or [*_lines(evidence), *_times(evidence)])


def status_and_reason(found: Sequence[Finding]) -> tuple[str, str | None]:
    if not found:
        return "ok", None
    status = min((status for status, _ in found), key=_WORST_FIRST.index)
    return status, "; ".join(clause for _, clause in found)


def _end(evidence: CustomEvidence) -> Iterator[Finding]:
    if evidence.is_flood:
        most = f"{format_bytes(MOST_BYTES)} or {MOST_LINES} lines of output"
        yield "partial", f"it was ended after {most}"
    elif evidence.lacks_totals:
        yield "partial", "bpftrace did not end by itself, so that it did not print its maps"
    elif evidence.status is not None and _is_early(evidence):
        told = f": {evidence.last_error_line}" if evidence.last_error_line else ""
        before = f"{format_seconds(evidence.end - (evidence.ended_at or evidence.end))} before"
        status = evidence.status
        if status == 0:
            yield "partial", f"it ended {before} the measured part did{told}"
        else:
            by_signal, by_itself = f"was killed by signal {-status}", f"failed with status {status}"
            death = by_signal if status < 0 else by_itself
            yield "failed", f"it {death}, {before} the measured part ended{told}"


def _is_early(evidence: CustomEvidence) -> bool:
    return evidence.ended_at is not None and evidence.ended_at < evidence.end


def _no_lines(evidence: CustomEvidence) -> list[Finding]:
    if evidence.values:
        return []
    if not evidence.lines:
        told = evidence.last_error_line if not _is_early(evidence) else None
        return [("failed", f"it printed no line{f': {told}' if told else ''}")]
    if evidence.spec.is_script:
        return [("failed", "it printed neither a map nor an object with numbers")]
    first, count = evidence.lines[0], len(evidence.lines)
    none = f"none of its {count} lines is a JSON object with a number"
    return [("failed", f"{none}, the first is {first.reason or first.text[:60]!r}")]


def _lines(evidence: CustomEvidence) -> Iterator[Finding]:
    bad = [line for line in evidence.lines if line.data is None]
    if bad and not evidence.spec.is_script:
        which = f"{len(bad)} of its {len(evidence.lines)} lines"
        yield "partial", f"{which} are not JSON objects, the first is {bad[0].reason}"
    if evidence.lost_events:
        yield "partial", f"bpftrace lost {evidence.lost_events} events"
    if (count := len(fields_of(evidence.values))) > MOST_FIELDS:
        fields = f"{count} fields, of which only the first {MOST_FIELDS} become responses"
        yield "partial", f"it has {fields}"


def _times(evidence: CustomEvidence) -> Iterator[Finding]:
    wrong = sum(one.has_wrong_time for one in evidence.values)
    if wrong:
        why = "is not a time of CLOCK_MONOTONIC, so that the time of arrival counts"
        yield "partial", f"`t` of {wrong} lines {why}"
    first = min(one.t for one in evidence.values)
    within = [one for one in evidence.values if evidence.begin <= one.t <= evidence.end]
    if not within:
        seconds = format_seconds(evidence.end - evidence.begin)
        yield "failed", f"none of its lines is in the measured part of {seconds}"
    elif evidence.spec.period_seconds and first > evidence.begin + evidence.spec.period_seconds:
        late = format_seconds(first - evidence.begin)
        yield "partial", f"its first line came {late} after the measured part had begun"
    if silences := evidence.gaps():
        count = "a silence" if len(silences) == 1 else f"{len(silences)} silences"
        least = f"{evidence.spec.period_seconds + 1:g} s"
        yield "partial", f"it has {count} of over {least}, up to {max(silences):.1f} s"
