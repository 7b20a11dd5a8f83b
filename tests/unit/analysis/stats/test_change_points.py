"""Our division of a series against that of the library ruptures."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from ruptures import Pelt

from analysis import stats as ours


def series(seed, length):
    """Return a series whose level changes at random."""
    draw, level, values = random.Random(seed), 0.0, []
    for _ in range(length):
        level += draw.choice([0.0] * 6 + [0.2, -0.2])
        values.append(math.exp(level + draw.gauss(0, 0.05)))
    return values


def by_ruptures(values):
    scaled = ours._comparable(values)
    noise = max(ours._noise(scaled), ours.LEAST_NOISE)
    found = Pelt(model="l2", min_size=2, jump=1).fit(np.array(scaled).reshape(-1, 1) / noise)
    return [int(end) for end in found.predict(pen=ours._PENALTY * math.log(len(values)))[:-1]]


@pytest.mark.parametrize("length", [4, 5, 8, 15, 40, 120])
def test_segments_are_those_of_ruptures(length):
    pairs = [
        (ours.change_points(values), by_ruptures(values))
        for values in (series(seed, length) for seed in range(25))
    ]
    assert all(mine == theirs for mine, theirs in pairs)
    assert length < 8 or any(mine for mine, _ in pairs)


def test_a_long_series_takes_no_second():
    values = series(1, 1000)
    assert ours.change_points(values) == by_ruptures(values)
