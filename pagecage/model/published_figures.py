"""The published figures, experiments/articles/*.csv, and a claim completed by its row."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.definitions.claim_tables import ClaimTable, wrong_published
from pagecage.errors import UNREADABLE, PagecageError, why_unreadable

Row = Mapping[str, str]
_NUMBER = re.compile(r"^[~<>]?(?P<number>-?[0-9]+(?:\.[0-9]+)?)(?P<scale>[kKMG]?)$")
# As iostat -h and free -h print them: steps of 1024 (sysstat, human-readable units).
_SCALE = {"": 1, "k": 1024, "K": 1024, "M": 1024**2, "G": 1024**3}


def read_articles(directory: Path) -> dict[str, Row] | None:
    """Every row by its id; None where the checkout has no articles. Raises PagecageError when an id stands twice."""
    paths = sorted(directory.glob("*.csv"))
    rows: dict[str, Row] = {}
    for path in paths:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["id"] in rows:
                    raise PagecageError(f"{path.name}: {row['id']} stands twice", f"edit {path}")
                rows[row["id"]] = row
    return rows if paths else None


def number_or_text(text: str) -> float | str:
    """A published figure as a number ("~740", "804.4M"), or as the text that it is ("killed")."""
    match = _NUMBER.match(text.strip())
    return float(match["number"]) * _SCALE[match["scale"]] if match else text.strip()


def complete_claim(claim: ClaimTable, rows: Mapping[str, Row] | None, experiment: str) -> dict[str, Any]:
    """The claim with everything that its row says and it does not. Raises PagecageError naming the key."""
    row = _row_of(claim, rows, experiment)
    whole = claim.model_dump()
    told = _told(row) if row else {"remark": ""}
    whole |= {key: told.get(key) for key in ("says", "published", "unit", "remark") if whole[key] is None}
    for key in ("says", "published", "unit"):
        if whole[key] is None:
            raise PagecageError(
                f"claims.{claim.id}.{key} is missing", "give it here, or its row in experiments/articles"
            )
    if wanted := wrong_published(claim.rule, whole["published"]):
        published = whole["published"]
        hint = "give published in the claim"
        raise PagecageError(f"claims.{claim.id}.published: {published!r} is not {wanted} (rule {claim.rule!r})", hint)
    return whole


def _row_of(claim: ClaimTable, rows: Mapping[str, Row] | None, experiment: str) -> Row | None:
    if rows is None:
        return None
    row = rows.get(claim.id)
    if row is None:
        raise PagecageError(f"claims: no article has a row {claim.id!r}", "look into experiments/articles/*.csv")
    if experiment not in row["experiment"].split():
        raise PagecageError(f"claims.{claim.id} belongs to {row['experiment']}", "move the claim there")
    if row["untestable"]:
        raise PagecageError(f"claims.{claim.id} has a rule, and its row says that it is untestable", "keep one of both")
    return row


def _told(row: Row) -> dict[str, Any]:
    return {
        "says": f"{row['condition']}: {row['metric']}", "published": number_or_text(row["published"]),
        "unit": row["unit"], "remark": row["remark"],
    }  # fmt: skip


def check_config_key(claim: Mapping[str, Any], definition: Mapping[str, Any]) -> None:
    """Raise PagecageError where a `config` claim names what the definition has not."""
    value: Any = definition
    for part in (claim["key"] or "").split(".") if claim["rule"] == "config" else ():
        if not isinstance(value, Mapping) or part not in value:
            raise PagecageError(f"claims.{claim['id']}.key: the definition has no {claim['key']}", "name another key")
        value = value[part]


@dataclass(frozen=True)
class PublishedFigure:
    """One published figure; `experiments` are those that may test it, the first being its home."""

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
    def says(self) -> str:
        """What it is about, in one line."""
        return f"{self.condition}: {self.metric}"


def read_rows(experiments: Path) -> list[PublishedFigure]:
    """Every row of experiments/articles/*.csv, in the order of the ids' numbers."""
    files = sorted((experiments / "articles").glob("*.csv"))
    rows = [_row(row) for file in files for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines())]
    return sorted(rows, key=lambda row: int(row.id.partition("-")[2]))


def _row(row: Mapping[str, str]) -> PublishedFigure:
    return PublishedFigure(
        experiments=tuple(row["experiment"].split()), **{k: v for k, v in row.items() if k != "experiment"}
    )


def read_titles(experiments: Path) -> Mapping[str, Mapping[str, str]]:
    """Title, author and date by the first part of an id."""
    return tomllib.loads((experiments / "articles" / "articles.toml").read_text(encoding="utf-8"))


def read_definitions(experiments: Path) -> dict[str, Mapping[str, Any]]:
    """Every definition by its name, as it stands in its file. Raises PagecageError on a file that is no TOML."""
    return dict(_definitions(experiments))


def _definitions(experiments: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for file in sorted(experiments.glob("*.toml")):
        try:
            yield file.stem, tomllib.loads(file.read_text(encoding="utf-8"))
        except UNREADABLE as error:
            raise PagecageError(f"{file.name}: {why_unreadable(error)}", f"edit {file}") from None


def rules_of(definitions: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """For each id, the claim of each experiment that has a rule for it."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, definition in definitions.items():
        for claim in definition.get("claims", []):
            found.setdefault(claim["id"], {})[name] = claim
    return found


def complaints(rows: list[PublishedFigure], definitions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is wrong between rows and rules: a rule without its row, a row with both or with neither."""
    rules, known = rules_of(definitions), {row.id: row for row in rows}
    strange = [f"{name}: no article has {id_}" for id_, by in rules.items() for name in by if id_ not in known]
    foreign = [
        f"{name}: {id_} belongs to {' '.join(known[id_].experiments)}"
        for id_, by in rules.items() for name in by if id_ in known and name not in known[id_].experiments
    ]  # fmt: skip
    both = [f"{row.id}: a rule and a reason why it is untestable" for row in rows if row.untestable and row.id in rules]
    neither = [f"{row.id}: no rule and no reason" for row in rows if not row.untestable and row.id not in rules]
    missing = {name for row in rows if not row.untestable for name in row.experiments if name not in definitions}
    return [*strange, *foreign, *both, *neither, *(f"there is no experiment {name}" for name in sorted(missing))]
