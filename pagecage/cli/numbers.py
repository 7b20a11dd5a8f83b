"""Numbers as options take them: whole ones in decimal digits, between bounds that a machine can bear."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter, Token
from cyclopts.validators import Number

from pagecage.verdicts.median_interval import FEWEST, MOST_REPEATS

_MOST_SEED = 2**63 - 1  # what readers of JSON and of tables keep exactly
_LONGEST_SECONDS = 30 * 86400


def _in_digits(_: type[int], tokens: Sequence[Token]) -> int:
    """Read a whole number; cyclopts itself would round 1.5 and 1e9."""
    if not re.fullmatch(r"-?[0-9]{1,4000}", tokens[0].value):
        raise ValueError(f"{tokens[0].value!r} is not a whole number")
    return int(tokens[0].value)


def whole(least: int, most: int | None = None) -> Parameter:
    """Return how a whole number is read, with its bounds, both of them allowed."""
    return Parameter(converter=_in_digits, validator=Number(gte=least, lte=most))


Positive = Annotated[int, whole(1, 2**53)]
Repeats = Annotated[int, whole(1, MOST_REPEATS)]
Bound = Annotated[int, whole(FEWEST, MOST_REPEATS)]
Seed = Annotated[int, whole(0, _MOST_SEED)]
Port = Annotated[int, whole(1, 65535)]
Seconds = Annotated[float, Parameter(validator=Number(gt=0, lte=_LONGEST_SECONDS))]
