"""The exact confidence interval of a median, by counting ranks.

Tables show it, and it decides whether a run needs more repeats. Source: H. A. David and
H. N. Nagaraja, "Order Statistics", 3rd ed. (2003), section 7.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

CONFIDENCE = 0.95
MOST_REPEATS = 10_000
"""With more repeats per treatment, a plan takes minutes to write and to read."""
FEWEST = 6
"""The interval of five values, from lowest to highest, covers the median with only 94 %."""


def ranks_left_out(n: int) -> int:
    """Return how many of `n` values (six or more) to drop at each end for an interval of 95 %."""
    tail, k = 0.5**n, 0
    while True:
        next_tail = tail + math.comb(n, k + 1) * 0.5**n
        if 2 * next_tail > 1 - CONFIDENCE:
            return k
        tail, k = next_tail, k + 1


def half_width(values: Sequence[float]) -> float | None:
    """Return half of the interval's width as a share of the median.

    None for fewer than six values, or if the median is zero and the width is not.
    """
    if len(values) < FEWEST:
        return None
    ordered, k, middle = sorted(values), ranks_left_out(len(values)), median(values)
    if ordered[-1 - k] == ordered[k]:
        return 0.0
    return (ordered[-1 - k] - ordered[k]) / 2 / abs(middle) if middle else None
