"""Types of numeric options: whole numbers in decimal digits, within bounds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter, Token
from cyclopts.validators import Number

from pagecage.verdicts.median_interval import FEWEST, MOST_REPEATS

_MOST_SEED = 2**63 - 1  # the largest integer that pandas reads exactly from JSON
_LONGEST_SECONDS = 30 * 86400


def _parse_digits(_: type[int], tokens: Sequence[Token]) -> int:
    """Read a whole number; cyclopts itself would accept 1.5 and 1e9."""
    if not re.fullmatch(r"-?[0-9]{1,4000}", tokens[0].value):
        raise ValueError(f"{tokens[0].value!r} is not a whole number")
    return int(tokens[0].value)


def whole(least: int, most: int | None = None) -> Parameter:
    """Return the parser of a whole number from `least` to `most`, both included."""
    return Parameter(converter=_parse_digits, validator=Number(gte=least, lte=most), metavar="N")


Positive = Annotated[int, whole(1, 2**53)]
Repeats = Annotated[int, whole(1, MOST_REPEATS)]
Bound = Annotated[int, whole(FEWEST, MOST_REPEATS)]
Seed = Annotated[int, whole(0, _MOST_SEED)]
Port = Annotated[int, whole(1, 65535), Parameter(metavar="PORT")]
Seconds = Annotated[
    float, Parameter(validator=Number(gt=0, lte=_LONGEST_SECONDS), metavar="SECONDS")
]
Share = Annotated[float, Parameter(validator=Number(gt=0, lte=1), metavar="FACTOR")]
