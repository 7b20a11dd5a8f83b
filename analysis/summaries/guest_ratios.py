"""Ratios between a guest and a real CPU, of the same experiments at the same size."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from analysis.data.load import Run, Treatment
from analysis.summaries.cells import included_values, treatments

_RESPONSES = (
    "device_read_bytes",
    "device_reads",
    "major_faults",
    "minor_faults",
    "cpu_seconds",
)
"""Responses that are compared besides an experiment's own."""


@dataclass(frozen=True)
class GuestRatio:
    """A response of one experiment: the guest's figure divided by the native one.

    `ratios` holds one ratio of medians per treatment that both runs have.
    """

    experiment: str
    response: str
    ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median over the treatments."""
        return statistics.median(self.ratios)


def guest_ratios(runs: Iterable[Run]) -> list[GuestRatio]:
    """Return the ratios of each experiment that has a run of the same size on both hosts."""
    ordered = sorted(runs, key=_experiment)
    return [one for _, group in groupby(ordered, _experiment) for one in _pair(list(group))]


def _experiment(run: Run) -> tuple[str, str]:
    return run.plan["experiment"], run.plan["size"]


def _pair(group: Sequence[Run]) -> Iterator[GuestRatio]:
    native = [run for run in group if not run.is_emulated]
    guest = [run for run in group if run.is_emulated]
    if not native or not guest:
        return
    for response in dict.fromkeys((native[-1].response, *_RESPONSES)):
        ratios = tuple(_ratios(native[-1], guest[-1], response))
        if ratios:
            yield GuestRatio(native[-1].plan["experiment"], response, ratios)


def _ratios(native: Run, guest: Run, response: str) -> Iterator[float]:
    for treatment in treatments(native):
        there, here = (_median(run, treatment, response) for run in (guest, native))
        if there is not None and here:
            yield there / here


def _median(run: Run, treatment: Treatment, response: str) -> float | None:
    values = included_values(run, treatment, response)
    return statistics.median(values) if values else None
