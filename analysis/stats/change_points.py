"""Change points of a series: the positions from which on it has another level.

Segments are found by PELT with a least-squares cost (R. Killick et al., "Optimal Detection of
Changepoints With a Linear Computational Cost", JASA 107, 2012), by the library ruptures. The noise
is estimated from the differences of neighbours, which a change of level hardly affects.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

FEWEST_POINTS = 4
"""Shorter series have no segment of two points beside another."""
LEAST_NOISE = 1e-3
"""Noise that is assumed at least, as a share: smaller changes are of no interest."""
_MAD_TO_SIGMA = 1.4826
_PENALTY = 4.0
"""Cost of a change point, times the logarithm of the number of points.

Two or three follow from the information criterion of Schwarz, if the noise is known. It is
estimated here, from few points, so that more is needed to keep false alarms rare.
"""


def change_points(values: Sequence[float]) -> list[int]:
    """Return the indices at which a new level begins, ascending; none for short series.

    Levels are compared by their ratio. A series with a value that is not positive is compared by
    differences, in units of its largest value.
    """
    if len(values) < FEWEST_POINTS:
        return []
    import numpy as np
    from ruptures import Pelt  # imported late: it takes seconds

    scaled = _comparable(values)
    signal = np.array(scaled).reshape(-1, 1) / max(_noise(scaled), LEAST_NOISE)
    found = Pelt(model="l2", min_size=2, jump=1).fit(signal)
    return [int(end) for end in found.predict(pen=_PENALTY * math.log(len(values)))[:-1]]


def _comparable(values: Sequence[float]) -> list[float]:
    if min(values) > 0:
        return [math.log(value) for value in values]
    largest = max(abs(value) for value in values) or 1.0
    return [value / largest for value in values]


def _noise(values: Sequence[float]) -> float:
    """Return the standard deviation of independent values around a level that changes rarely."""
    steps = [after - before for before, after in itertools.pairwise(values)]
    middle = statistics.median(steps)
    deviation = statistics.median(abs(step - middle) for step in steps)
    return _MAD_TO_SIGMA * deviation / math.sqrt(2)
