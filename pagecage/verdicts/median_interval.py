"""The exact interval of a median, by counting: what the table shows, and what decides whether more repeats are needed.

Source: H. A. David and H. N. Nagaraja, "Order Statistics", 3rd ed. (2003), section 7.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

CONFIDENCE = 0.95
MOST_REPEATS = 10_000
"""More repeats of a treatment make a plan that takes minutes to write and to read."""
FEWEST = 6
"""With five values even lowest to highest covers the median only with 94 %, so that no 95 % interval exists."""


def ranks_left_out(n: int) -> int:
    """How many of `n` values to drop at each end so that what remains covers the median with 95 %; at least six."""
    tail, k = 0.5**n, 0
    while True:
        following = tail + math.comb(n, k + 1) * 0.5**n
        if 2 * following > 1 - CONFIDENCE:
            return k
        tail, k = following, k + 1


def half_width(values: Sequence[float]) -> float | None:
    """Half of the interval's width as a share of the median; None of fewer than six values, or where no share fits."""
    if len(values) < FEWEST:
        return None
    ordered, k, middle = sorted(values), ranks_left_out(len(values)), median(values)
    if ordered[-1 - k] == ordered[k]:
        return 0.0
    return (ordered[-1 - k] - ordered[k]) / 2 / abs(middle) if middle else None
