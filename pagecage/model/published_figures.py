"""Figures that articles published, the rules that score them, and the dates of the rules."""

from __future__ import annotations

import csv
import datetime
import json
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from pagecage.checkout import TOP
from pagecage.errors import UNREADABLE, PagecageError, why_unreadable
from pagecage.model.json_codec import Json, JsonView
from pagecage.whole_files import text_sha256

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


FILE = "rule-dates.csv"
HINT = "run tools/update-rule-dates"
_DEFAULTS: JsonView = {
    **dict.fromkeys(("rule", "response", "over_response", "per", "along", "key", "where", "over")),
    **dict.fromkeys(("than", "than_over", "published", "unit")),
    "over_boot": False,
    "with_wrong_answers": False,
    "statistic": "median",
    "tolerance_factor": 2.0,
    "needs": "any_size",
}
"""Keys of a claim that decide its verdict, with their defaults."""
OWN_FIGURE = ("published", "unit")
"""Keys that a claim takes from its row unless it gives them."""


@dataclass(frozen=True)
class RuleDate:
    """The day on which a rule was last changed (ISO 8601), and the SHA-256 of its content."""

    id: str
    experiment: str
    changed: str
    sha256: str

    @property
    def key(self) -> tuple[str, str]:
        return self.id, self.experiment


def rule_content(claim: JsonView) -> Json:
    """Return the keys of a claim that decide its verdict and differ from their defaults."""
    values = {key: claim.get(key, default) for key, default in _DEFAULTS.items()}
    return {key: v for key, v in values.items() if v not in (_DEFAULTS[key], None, {}, [])}


def is_same_rule(planned: JsonView, current: JsonView) -> bool:
    """Return whether a plan's rule, which is completed from its row, is the current one."""
    now, then = rule_content(current), rule_content(planned)
    return now == {key: v for key, v in then.items() if key in now or key not in OWN_FIGURE}


def rule_sha256(claim: JsonView) -> str:
    text = json.dumps(rule_content(claim), sort_keys=True)
    return text_sha256(text)[:16]


def read_rule_dates(experiments: Path) -> dict[tuple[str, str], RuleDate]:
    """Return the stored dates by id and experiment; empty if the checkout has no such file."""
    path = experiments / FILE
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        dates = [RuleDate(**row) for row in csv.DictReader(file)]
    return {date.key: date for date in dates}


def current_rules(experiments: Path) -> dict[tuple[str, str], str]:
    """Return the hash of each rule of the definitions, by id and experiment."""
    rules = rules_of(read_definitions(experiments))
    return {
        (id_, name): rule_sha256(rule) for id_, by in rules.items() for name, rule in by.items()
    }


def outdated(experiments: Path) -> list[str]:
    """Return a sentence for each rule whose content differs from the one that was dated."""
    dates, rules = read_rule_dates(experiments), current_rules(experiments)
    changed = [key for key, sha in rules.items() if key not in dates or dates[key].sha256 != sha]
    gone = [key for key in dates if key not in rules]
    return [
        *(f"{name}: the rule of {id_} has changed, and its date has not" for id_, name in changed),
        *(f"{name}: {id_} has a date and no rule" for id_, name in gone),
    ]


def update_rule_dates(experiments: Path, today: datetime.date) -> list[RuleDate]:
    """Write the file anew, with today's date for rules that changed; return these rules."""
    dates = read_rule_dates(experiments)
    rows, changed = [], []
    for key, sha in sorted(current_rules(experiments).items()):
        date = dates.get(key)
        if date is None or date.sha256 != sha:
            date = RuleDate(*key, today.isoformat(), sha)
            changed.append(date)
        rows.append(date)
    with (experiments / FILE).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(
            file, ["id", "experiment", "changed", "sha256"], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    return changed


def main() -> None:
    """Date the rules of this checkout that have changed, and print them."""
    for date in update_rule_dates(TOP / "experiments", datetime.datetime.now(datetime.UTC).date()):
        sys.stdout.write(f"{date.experiment}: {date.id}\n")


if __name__ == "__main__":
    main()
