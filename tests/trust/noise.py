"""Noise as it was recorded: how repeats of one treatment differed from their median."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from analysis.data.bundles import bundled_runs
from analysis.summaries.cells import included_values, treatments

FEWEST_REPEATS = 4
RESPONSES = {
    "times on a real CPU": ("seconds", False),
    "times in an emulated guest": ("seconds", True),
    "bytes read from the disk": ("device_read_bytes", None),
    "reads of the disk": ("device_reads", None),
}
"""Kinds of noise: a response's name or ending, and whether the runs are emulated."""


def recorded_noise(bundles: Path) -> Mapping[str, tuple[float, ...]]:
    """Return by kind the ratio of each repeat to the median of its treatment.

    The treatment needs four repeats and a positive median.
    """
    found: dict[str, list[float]] = defaultdict(list)
    with bundled_runs(bundles) as runs:
        for run in runs:
            for kind, (response, is_emulated) in RESPONSES.items():
                name = run.response if response == "seconds" else response
                if not name.endswith(response) or is_emulated not in (None, run.is_emulated):
                    continue
                for treatment in treatments(run):
                    values = included_values(run, treatment, name)
                    if len(values) >= FEWEST_REPEATS and (middle := median(values)) > 0:
                        found[kind] += [value / middle for value in values]
    return {kind: tuple(values) for kind, values in found.items()}
