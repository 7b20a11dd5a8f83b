"""Figures that articles published, and the rules of the definitions that score them."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from pagecage.errors import UNREADABLE, PagecageError, why_unreadable
from pagecage.model.json_codec import JsonView

CONCLUSION = "conclusion"
"""Kind of an added row: derived from an article's conclusions, not printed in it."""
_NUMBER = re.compile(r"^[~<>]?(?P<number>-?[0-9]+(?:\.[0-9]+)?)(?P<scale>[kKMG]?)$")
# iostat -h and free -h print units with steps of 1024 (sysstat, human-readable units).
_SCALE = {"": 1, "k": 1024, "K": 1024, "M": 1024**2, "G": 1024**3}


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
        return f"{self.condition}: {self.metric}"

    @property
    def origin(self) -> str:
        """`article`, or `conclusion` for an added row that follows from its conclusions."""
        return CONCLUSION if self.kind == CONCLUSION else "article"


def read_articles(directory: Path) -> dict[str, PublishedFigure] | None:
    """Return the rows by id; None without articles. Raises PagecageError for a duplicate id."""
    paths = sorted(directory.glob("*.csv"))
    rows: dict[str, PublishedFigure] = {}
    names = [one.name for one in fields(PublishedFigure) if one.name != "experiments"]
    for path in paths:
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            if row["id"] in rows:
                reason = f"{path.name}: the id {row['id']} is not unique"
                raise PagecageError(reason, f"edit {path}")
            texts = {name: row[name] for name in names}
            rows[row["id"]] = PublishedFigure(**texts, experiments=tuple(row["experiment"].split()))
    return rows if paths else None


def read_rows(experiments: Path) -> list[PublishedFigure]:
    """Return the rows of experiments/articles/*.csv, sorted by the number in the id."""
    rows = read_articles(experiments / "articles") or {}
    return sorted(rows.values(), key=lambda row: int(row.id.partition("-")[2]))


def number_or_text(text: str) -> float | str:
    """Return a published figure as a number ("~740", "804.4M"), or as text ("killed")."""
    match = _NUMBER.match(text.strip())
    return float(match["number"]) * _SCALE[match["scale"]] if match else text.strip()


def read_titles(experiments: Path) -> Mapping[str, Mapping[str, str]]:
    """Return title, author and date of the articles, by the first part of an id."""
    return tomllib.loads((experiments / "articles" / "articles.toml").read_text(encoding="utf-8"))


def read_definitions(experiments: Path) -> dict[str, JsonView]:
    """Return the content of each definition by name. Raises PagecageError if it is not TOML."""
    found: dict[str, JsonView] = {}
    for file in sorted(experiments.glob("*.toml")):
        try:
            found[file.stem] = tomllib.loads(file.read_text(encoding="utf-8"))
        except UNREADABLE as error:
            raise PagecageError(f"{file.name}: {why_unreadable(error)}", f"edit {file}") from None
    return found


def rules_of(definitions: Mapping[str, JsonView]) -> dict[str, dict[str, JsonView]]:
    found: dict[str, dict[str, JsonView]] = {}
    for name, definition in definitions.items():
        for claim in definition.get("claims", []):
            found.setdefault(claim["id"], {})[name] = claim
    return found
