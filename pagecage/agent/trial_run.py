"""One attempt at a trial: the services it uses, its cleanup, and the parts of its record so far."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagecage.agent.collectors.collector import CollectorResult
from pagecage.agent.data_files import make_dataset
from pagecage.agent.host_session import HostSession
from pagecage.agent.protocol import RunRequest
from pagecage.errors import HostError
from pagecage.model.cage import DATA_DISK
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.record_sections import MeasuredInterval
from pagecage.model.requirements import MissedRequirement
from pagecage.model.trial import Dataset, Trial


class NotPrepared(Exception):
    """The cache state or the dataset was not reached, so there is nothing to measure."""


@dataclass(frozen=True)
class Ending:
    """Outcome of an attempt, with its error message and the requirements that the host misses.

    `phase` is the phase that the outcome is attributed to, or None for the phase in which the
    attempt ended.
    """

    outcome: str
    error: str | None = None
    missed: tuple[MissedRequirement, ...] = ()
    phase: str | None = None

    @property
    def has_answer(self) -> bool:
        """True if the workload ran to an answer, right or wrong."""
        return self.outcome in ("ok", "oom_killed", "timed_out", "wrong_answer")


@dataclass(frozen=True)
class Measured:
    """Results of the run phase, before they are judged.

    `interval` is None if the measured part never ended. `cache` has the checks of the page cache.
    `breach` is the outcome of a workload that broke the handshake.
    """

    interval: MeasuredInterval | None
    counters: JsonView
    end: JsonView
    exit: JsonView
    last_line: str | None = None
    start_seconds: float | None = None
    is_timed_out: bool = False
    response: Mapping[str, float | None] = field(default_factory=dict)
    breach: Ending | None = None
    cache: JsonView = field(default_factory=dict)


@dataclass
class TrialRun:
    """One attempt at a trial: its input, its cleanup, and what the record needs.

    Each phase adds to `sections`, and to `disks` for the cage's other disks, at once, so that a
    later failure keeps what was found. Only the record reads them.
    """

    session: HostSession
    trial: Trial
    attempt: int
    directory: Path
    cleanup: ExitStack = field(default_factory=ExitStack)
    phase: str = "requirements"
    timings: list[Json] = field(default_factory=list)
    sections: defaultdict[str, Json] = field(default_factory=lambda: defaultdict(dict))
    disks: dict[str, dict[str, Json]] = field(default_factory=dict)
    interval: MeasuredInterval | None = None
    samples: list[Json] = field(default_factory=list)
    collected: dict[str, CollectorResult] = field(default_factory=dict)
    ending: Ending = Ending("failed")

    @property
    def request(self) -> RunRequest:
        return self.session.request

    @property
    def data_dir(self) -> Path:
        return Path(self.session.request.data_dir)

    def keep(self, section: str, disk: str = DATA_DISK, /, **values: Any) -> None:
        """Add values to a section of the record, or of another disk (`device` or `cage`)."""
        sections: dict[str, Json] = self.sections
        if disk != DATA_DISK:
            sections = self.disks.setdefault(disk, {})
        sections.setdefault(section, {}).update(values)

    def add_error(self, sentence: str) -> None:
        self.ending = replace(self.ending, error=f"{self.ending.error or ''} {sentence}".strip())

    def restore_after(self, restore: Callable[[], list[str]]) -> None:
        """Restore settings in the cleanup. A failure goes into the record: the change stays."""

        def put_back() -> None:
            for failure in restore():
                self.add_error(failure)

        self.cleanup.callback(put_back)

    def make_dataset(self, dataset: Dataset, directory: Path) -> Path:
        """Make a dataset as the user who will read it. Raises NotPrepared if that fails."""
        try:
            return make_dataset(dataset, directory, Path(self.request.programs_dir) / "pcgen")
        except HostError as error:
            raise NotPrepared(error.message) from None

    def tell(self, text: str) -> None:
        self.session.stream.event("step", text=text)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        self.phase = phase
        wall, begin = time.time(), time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - begin
            moments = {"start_wall_seconds": wall, "start_monotonic_seconds": begin}
            self.timings.append({"name": phase, **moments, "seconds": seconds})

    @contextmanager
    def announced(self, phase: str) -> Iterator[None]:
        with self.timed(phase):
            self.session.stream.event("phase", trial_id=self.trial.trial_id, phase=phase)
            yield

    def clean_up(self) -> None:
        """Undo what the phases left, last first. A failure goes into the record."""
        failed_in = self.ending.phase or self.phase
        with self.timed("cleanup"):
            try:
                self.cleanup.close()
            except Exception as error:  # noqa: BLE001 - whatever it is, the record comes first
                self.add_error(f"cleanup: {error}")
        self.phase = "record" if self.ending.has_answer else failed_in

    def await_tracers(self, launched_boot_ns: int) -> None:
        """Wait for a tick of each tracer, so that earlier events are in a tick of their own."""
        for tracer in (self.session.tracer, self.session.block_tracer):
            if tracer.name in self.trial.collectors:
                tracer.wait_for_tick(launched_boot_ns)
