"""The time that the remaining trials of a run are expected to take."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pagecage.model.record import Record
from pagecage.model.trial import Trial
from pagecage.planning.size import first_estimate_seconds
from pagecage.units import format_seconds

TreatmentKey = tuple[tuple[str, str], ...]


def _key(treatment: Mapping[str, str]) -> TreatmentKey:
    return tuple(sorted(treatment.items()))


@dataclass(frozen=True)
class ExpectedTrials:
    """The trials of a plan without a result.

    `first_seconds` has the treatment and the first estimate of each, by trial id. `measured` has
    the durations of earlier trials of a treatment.
    """

    first_seconds: Mapping[str, tuple[TreatmentKey, float]]
    measured: Mapping[TreatmentKey, Sequence[float]]

    @classmethod
    def of(
        cls, trials: Sequence[Trial], records: Iterable[Record] = (), seconds: float | None = None
    ) -> ExpectedTrials:
        """Return the expected trials of a plan; `seconds` is an estimate for all of them."""
        first = {trial.trial_id: first_estimate_seconds(trial) for trial in trials}
        scale = 1.0 if seconds is None else seconds / (sum(first.values()) or 1.0)
        measured: dict[TreatmentKey, list[float]] = defaultdict(list)
        for record in records:
            if record.is_final and record.phases:
                measured[_key(record.treatment)].append(_duration_seconds(record))
        keys = {trial.trial_id: _key(trial.treatment) for trial in trials}
        return cls({one: (keys[one], scale * first[one]) for one in keys}, measured)


NOTHING = ExpectedTrials({}, {})


def _duration_seconds(record: Record) -> float:
    """Return the time from the first phase of a trial to the end of its last."""
    begins = [phase.start_monotonic_seconds for phase in record.phases]
    ends = [phase.start_monotonic_seconds + phase.seconds for phase in record.phases]
    return max(ends) - min(begins)


class TimeEstimate:
    """The time left, which is first estimated and then measured.

    A trial is expected to take as long as the earlier ones of its treatment. Without one, its first
    estimate is corrected by the factor between the estimates and the durations of those that ended.
    A trial that is not among the expected ones takes the mean of all.
    """

    def __init__(
        self, total: int, done: int, trial_seconds: float, expected: ExpectedTrials = NOTHING
    ) -> None:
        self.total, self.done, self._trial_seconds = total, done, trial_seconds
        self._waiting = dict(expected.first_seconds)
        self._measured = {key: list(each) for key, each in expected.measured.items()}
        self._estimated_seconds = self._taken_seconds = 0.0
        self._since: float | None = None
        self._finished = 0

    @classmethod
    def of(
        cls, total: int, remaining: Sequence[Trial], records: Iterable[Record], seconds: float
    ) -> TimeEstimate:
        """Return the estimate of a plan of `total` trials; those that remain take `seconds`."""
        expected = ExpectedTrials.of(remaining, records, seconds)
        return cls(total, total - len(remaining), seconds / max(1, len(remaining)), expected)

    def begin(self) -> None:
        """Note that a trial begins; the first one starts the clock."""
        self._since = self._since or time.monotonic()

    def end(self, record: Record) -> int:
        """Note that a trial ended; return the number of trials with a result."""
        now = time.monotonic()
        if self._since is not None:
            self._finished += 1
            self._note(record, now - self._since)
        self._since = now
        self.done += int(record.is_final)
        return self.done

    def _note(self, record: Record, seconds: float) -> None:
        self._trial_seconds += (seconds - self._trial_seconds) / self._finished
        if record.is_final:
            key, estimate = self._waiting.pop(record.trial_id, (_key(record.treatment), 0.0))
            self._measured.setdefault(key, []).append(seconds)
            if estimate and record.outcome != "requirement_missed":
                self._estimated_seconds += estimate
                self._taken_seconds += seconds

    @property
    def number(self) -> str:
        """The trials with a result out of all trials, as ` 12/36`."""
        return f"{self.done:>3}/{self.total}"

    @property
    def left_seconds(self) -> float:
        correction = 1.0
        if self._estimated_seconds:
            correction = self._taken_seconds / self._estimated_seconds
        known = 0.0
        for key, estimate in self._waiting.values():
            measured = self._measured.get(key)
            known += sum(measured) / len(measured) if measured else correction * estimate
        others = max(0, self.total - self.done - len(self._waiting))
        return known + others * self._trial_seconds

    @property
    def left(self) -> str:
        """The remaining time, as in "about 40 s left"."""
        return f"about {format_seconds(self.left_seconds)} left"
