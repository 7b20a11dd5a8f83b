"""Records whose figures are given."""

from __future__ import annotations

import random

COLD = {"cage": "tenth", "source": "unloaded", "pattern": "sequential"}


def times(factor, seed=1, spread=0.02):
    """Every figure anew: the cell's own second times `factor`, with a little noise."""
    draw = random.Random(seed)

    def change(record):
        if record["response"]:
            seconds = factor * draw.uniform(1 - spread, 1 + spread)
            record["response"] = {**record["response"], "full_pass_seconds": seconds, "read_seconds": seconds}

    return change
