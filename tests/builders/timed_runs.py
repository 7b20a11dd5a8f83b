"""Records with given figures."""

from __future__ import annotations

import random

from pagecage.model.json_codec import Json
from tests.fixtures.runs import Change

COLD = {"cage": "tenth", "source": "unloaded", "pattern": "sequential"}


def times(factor: float, seed: int = 1, spread: float = 0.02) -> Change:
    """Return a change that sets every figure to `factor` seconds, with a little noise."""
    draw = random.Random(seed)

    def change(record: Json) -> None:
        if record["response"]:
            seconds = factor * draw.uniform(1 - spread, 1 + spread)
            record["response"] |= {"full_pass_seconds": seconds, "read_seconds": seconds}
            # Without the raw evidence, which would contradict the figures.
            record["measured"], record["traces"] = None, {}

    return change
