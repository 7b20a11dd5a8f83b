"""Explanations of the rows that do not hold on a set of stored runs.

They belong to those runs alone, so they are stored beside their bundles, in deviations.toml.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.claims.scorecard import ScoredClaim
from pagecage.errors import PagecageError

FILE = "deviations.toml"
_KEYS = {"claims", "cause", "evidence"}
_PLACE = re.compile(r"\{(\d{3}-\d+)\}")


@dataclass(frozen=True)
class Deviation:
    """The cause for which some rows do not hold.

    `cause` may contain `{ID}`, which stands for the measured figure of that row. `evidence` names
    experiments, or addresses of sources.
    """

    claims: tuple[str, ...]
    cause: str
    evidence: tuple[str, ...]


def read_deviations(folder: Path) -> tuple[Deviation, ...]:
    """Return the explanations in a folder of bundles, none without the file.

    Raises PagecageError if the file is invalid or explains a row twice.
    """
    path = folder / FILE
    if not path.is_file():
        return ()
    try:
        tables = tomllib.loads(path.read_text())["deviations"]
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise PagecageError(f"{path} is not a list of deviations: {error}", "correct it") from None
    for table in tables:
        if set(table) != _KEYS or not all(table.values()):
            raise PagecageError(
                f"{path}: the deviation of {table.get('claims')} is incomplete",
                f"give it {', '.join(sorted(_KEYS))}",
            )
    found = tuple(
        Deviation(tuple(table["claims"]), table["cause"], tuple(table["evidence"]))
        for table in tables
    )
    ids = [id_ for deviation in found for id_ in deviation.claims]
    if twice := sorted({id_ for id_ in ids if ids.count(id_) > 1}):
        raise PagecageError(f"{path} explains {twice[0]} twice", "remove one explanation")
    return found


def unexplained(rows: Iterable[ScoredClaim], deviations: Sequence[Deviation]) -> list[str]:
    """Return the ids of the rows that do not hold and have no explanation."""
    explained = {id_ for deviation in deviations for id_ in deviation.claims}
    return [row.id for row in rows if row.verdict == "not_held" and row.id not in explained]


def with_figures(cause: str, figures: Mapping[str, str]) -> str:
    """Return a cause with the measured figures of the rows that it names.

    Raises PagecageError if a row has no figure.
    """
    if missing := [id_ for id_ in _PLACE.findall(cause) if id_ not in figures]:
        raise PagecageError(
            f"{FILE} names {missing[0]}, which has no measured figure", "correct it"
        )
    return _PLACE.sub(lambda place: figures[place[1]], cause)
