"""Two-level resampling: of blocks, and of the trials within them.

Source: T. Kalibera and R. Jones, "Rigorous Benchmarking in Reasonable Time" (2013), section 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Block = Mapping[str, Sequence[float]]


def resampled_ratios(
    numerator: Sequence[Block],
    denominator: Sequence[Block],
    names: Sequence[str],
    resamples: int,
    seed: int,
) -> list[float]:
    """Return, sorted, one geometric mean of ratios of medians over `names` per resample.

    Both sides are resampled independently. A treatment without values in a resample is left out of
    that resample's mean.
    """
    rng = np.random.default_rng(seed)
    tops, bottoms = (
        _resampled_table(side, names, resamples, rng) for side in (numerator, denominator)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(tops) - np.log(bottoms)
    means = np.nanmean(logs, axis=1)
    return [float(value) for value in np.sort(np.exp(means[np.isfinite(means)]))]


def resampled_medians(blocks: Sequence[Sequence[float]], resamples: int, seed: int) -> list[float]:
    """Return the sorted medians of resamples of one treatment.

    Blocks are drawn first, then from each block as many values as it has.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(blocks), size=(resamples, len(blocks)))
    return [float(value) for value in np.sort(_medians(blocks, chosen, rng))]


def _resampled_table(
    blocks: Sequence[Block], names: Sequence[str], resamples: int, rng: np.random.Generator
) -> Any:
    """Return an array of medians: one row per resample, one column per treatment.

    All treatments of a resample use the same drawn blocks.
    """
    chosen = rng.integers(len(blocks), size=(resamples, len(blocks)))
    columns = [_medians([block.get(name, ()) for block in blocks], chosen, rng) for name in names]
    return np.stack(columns, axis=1)


def _medians(blocks: Sequence[Sequence[float]], chosen: Any, rng: np.random.Generator) -> Any:
    """Return the medians of one treatment, one per resample.

    From each drawn block as many trials are drawn, with replacement, as the block has.
    """
    counts = np.array([len(values) for values in blocks])
    table = np.full((len(blocks), max(1, int(counts.max()))), np.nan)
    for place, values in enumerate(blocks):
        table[place, : len(values)] = values
    if table.shape[1] == 1:
        return _row_medians(table[chosen, 0])
    slots = np.floor(
        rng.random((*chosen.shape, table.shape[1])) * counts[chosen][..., None]
    ).astype(int)
    beyond = np.arange(table.shape[1]) >= counts[chosen][..., None]
    picked = np.where(beyond, np.nan, table[chosen[..., None], slots])
    return _row_medians(picked.reshape(len(chosen), -1))


def _row_medians(rows: Any) -> Any:
    """Return the median of each row without absent values; absent if a row has no value."""
    ordered = np.sort(rows, axis=1)  # absent values sort last
    counts = np.sum(~np.isnan(ordered), axis=1)
    at = np.arange(len(ordered))
    low, high = np.maximum(counts - 1, 0) // 2, counts // 2
    both = ordered[at, low] + ordered[at, np.minimum(high, ordered.shape[1] - 1)]
    return np.where(counts > 0, both / 2, np.nan)
