"""Records with given figures."""

from __future__ import annotations

import random

COLD = {"cage": "tenth", "source": "unloaded", "pattern": "sequential"}


def times(factor, seed=1, spread=0.02):
    """Return a change that sets every figure to `factor` seconds, with a little noise."""
    draw = random.Random(seed)

    def change(record):
        if record["response"]:
            seconds = factor * draw.uniform(1 - spread, 1 + spread)
            record["response"] = {
                **record["response"],
                "full_pass_seconds": seconds,
                "read_seconds": seconds,
            }
            # Without the raw evidence, which would contradict the figures.
            record["measured"], record["traces"] = None, {}

    return change
