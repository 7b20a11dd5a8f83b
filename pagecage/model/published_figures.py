"""The published figures, in experiments/articles/*.csv, and the claims that test them."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.errors import UNREADABLE, PagecageError, why_unreadable

PublishedFigureRow = Mapping[str, str]
CONCLUSION = "conclusion"
"""Kind of an added row: derived from an article's conclusions, not printed in it."""
_NUMBER = re.compile(r"^[~<>]?(?P<number>-?[0-9]+(?:\.[0-9]+)?)(?P<scale>[kKMG]?)$")
# iostat -h and free -h print units with steps of 1024 (sysstat, human-readable units).
_SCALE = {"": 1, "k": 1024, "K": 1024, "M": 1024**2, "G": 1024**3}


def read_articles(directory: Path) -> dict[str, PublishedFigureRow] | None:
    """Return the rows by id; None if the checkout has no articles.

    Raises PagecageError for a duplicate id.
    """
    paths = sorted(directory.glob("*.csv"))
    rows: dict[str, PublishedFigureRow] = {}
    for path in paths:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["id"] in rows:
                    raise PagecageError(
                        f"{path.name}: the id {row['id']} is not unique", f"edit {path}"
                    )
                rows[row["id"]] = row
    return rows if paths else None


def number_or_text(text: str) -> float | str:
    """Return a published figure as a number ("~740", "804.4M"), or as text ("killed")."""
    match = _NUMBER.match(text.strip())
    return float(match["number"]) * _SCALE[match["scale"]] if match else text.strip()


def origin(kind: str) -> str:
    """Return where a row of this kind comes from: `article`, or its `conclusion`."""
    return CONCLUSION if kind == CONCLUSION else "article"


@dataclass(frozen=True)
class PublishedFigure:
    """One published figure. `experiments` may test it; the first is the one it belongs to."""

    id: str
    experiments: tuple[str, ...]
    condition: str
    metric: str
    unit: str
    published: str
    kind: str
    remark: str
    untestable: str

    @property
    def description(self) -> str:
        """Condition and metric, in one line."""
        return f"{self.condition}: {self.metric}"

    @property
    def origin(self) -> str:
        """`article`, or `conclusion` for an added row that follows from its conclusions."""
        return origin(self.kind)


def read_rows(experiments: Path) -> list[PublishedFigure]:
    """Return the rows of experiments/articles/*.csv, sorted by the number in the id."""
    files = sorted((experiments / "articles").glob("*.csv"))
    rows = [
        _row(row)
        for file in files
        for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    ]
    return sorted(rows, key=lambda row: int(row.id.partition("-")[2]))


def _row(row: Mapping[str, str]) -> PublishedFigure:
    return PublishedFigure(
        experiments=tuple(row["experiment"].split()),
        **{k: v for k, v in row.items() if k != "experiment"},
    )


def read_titles(experiments: Path) -> Mapping[str, Mapping[str, str]]:
    """Return title, author and date of the articles, by the first part of an id."""
    return tomllib.loads((experiments / "articles" / "articles.toml").read_text(encoding="utf-8"))


def read_definitions(experiments: Path) -> dict[str, Mapping[str, Any]]:
    """Return the content of each definition by name.

    Raises PagecageError for a file that is not TOML.
    """
    return dict(_definitions(experiments))


def _definitions(experiments: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for file in sorted(experiments.glob("*.toml")):
        try:
            yield file.stem, tomllib.loads(file.read_text(encoding="utf-8"))
        except UNREADABLE as error:
            raise PagecageError(f"{file.name}: {why_unreadable(error)}", f"edit {file}") from None


def rules_of(
    definitions: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return the claims by id and by experiment."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, definition in definitions.items():
        for claim in definition.get("claims", []):
            found.setdefault(claim["id"], {})[name] = claim
    return found
