"""Resampling in two levels, blocks and the trials within them: what varies together is drawn together.

Source: T. Kalibera and R. Jones, "Rigorous Benchmarking in Reasonable Time" (2013), section 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Block = Mapping[str, Sequence[float]]


def drawn_ratios(
    over: Sequence[Block], under: Sequence[Block], names: Sequence[str], resamples: int, seed: int
) -> list[float]:
    """Geometric means over `names` of ratios of medians, one a resample, in order.

    Both sides are drawn independently; a treatment that a resample happens to lack does not count in it.
    """
    draw = np.random.default_rng(seed)
    tops, bottoms = (_drawn_medians(side, names, resamples, draw) for side in (over, under))
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(tops) - np.log(bottoms)
    means = np.nanmean(logs, axis=1)
    return [float(value) for value in np.sort(np.exp(means[np.isfinite(means)]))]


def drawn_medians(blocks: Sequence[Sequence[float]], resamples: int, seed: int) -> list[float]:
    """Medians of resamples of one treatment, in order: blocks are drawn, then as many values of each as it has."""
    draw = np.random.default_rng(seed)
    chosen = draw.integers(len(blocks), size=(resamples, len(blocks)))
    return [float(value) for value in np.sort(_medians(blocks, chosen, draw))]


def _drawn_medians(blocks: Sequence[Block], names: Sequence[str], resamples: int, draw: np.random.Generator) -> Any:
    """A row a resample, a column a treatment; all treatments of a resample come from the same blocks."""
    chosen = draw.integers(len(blocks), size=(resamples, len(blocks)))
    columns = [_medians([block.get(name, ()) for block in blocks], chosen, draw) for name in names]
    return np.stack(columns, axis=1)


def _medians(blocks: Sequence[Sequence[float]], chosen: Any, draw: np.random.Generator) -> Any:
    """Medians of one treatment: from each block that was chosen as many of its trials as it has, with replacement."""
    counts = np.array([len(values) for values in blocks])
    table = np.full((len(blocks), max(1, int(counts.max()))), np.nan)
    for place, values in enumerate(blocks):
        table[place, : len(values)] = values
    if table.shape[1] == 1:
        return _middle(table[chosen, 0])
    slots = np.floor(draw.random((*chosen.shape, table.shape[1])) * counts[chosen][..., None]).astype(int)
    beyond = np.arange(table.shape[1]) >= counts[chosen][..., None]
    picked = np.where(beyond, np.nan, table[chosen[..., None], slots])
    return _middle(picked.reshape(len(chosen), -1))


def _middle(rows: Any) -> Any:
    """Medians of rows, absent values aside; absent where a row has none."""
    ordered = np.sort(rows, axis=1)  # absent values go last
    known = np.sum(~np.isnan(ordered), axis=1)
    at = np.arange(len(ordered))
    low, high = np.maximum(known - 1, 0) // 2, known // 2
    both = ordered[at, low] + ordered[at, np.minimum(high, ordered.shape[1] - 1)]
    return np.where(known > 0, both / 2, np.nan)
