"""Dates on which the rules of claims were last changed, in experiments/rule-dates.csv."""

from __future__ import annotations

import csv
import datetime
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pagecage.checkout import TOP
from pagecage.digests import text_sha256
from pagecage.model.published_figures import read_definitions

FILE = "rule-dates.csv"
HINT = "run tools/update-rule-dates"
_DEFAULTS: Mapping[str, Any] = {
    "rule": None,
    "response": None,
    "over_response": None,
    "over_boot": False,
    "per": None,
    "statistic": "median",
    "along": None,
    "key": None,
    "where": None,
    "over": None,
    "than": None,
    "than_over": None,
    "tolerance_factor": 2.0,
    "needs": "any_size",
    "with_wrong_answers": False,
    "published": None,
    "unit": None,
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
        """Id and experiment, which together name a rule."""
        return self.id, self.experiment


def rule_content(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a claim that decide its verdict and differ from their defaults."""
    values = {key: claim.get(key, default) for key, default in _DEFAULTS.items()}
    return {key: v for key, v in values.items() if v not in (_DEFAULTS[key], None, {})}


def is_same_rule(planned: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Return whether a plan's rule, which is completed from its row, is the current one."""
    now, then = rule_content(current), rule_content(planned)
    return now == {key: v for key, v in then.items() if key in now or key not in OWN_FIGURE}


def rule_sha256(claim: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a rule's content, the first 16 digits."""
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


def current_rules(experiments: Path) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield id and experiment of each rule of the definitions, with the hash of its content."""
    for name, definition in read_definitions(experiments).items():
        for claim in definition.get("claims", []):
            yield (claim["id"], name), rule_sha256(claim)


def outdated(experiments: Path) -> list[str]:
    """Return a sentence for each rule whose content differs from the one that was dated."""
    dates, rules = read_rule_dates(experiments), dict(current_rules(experiments))
    changed = [key for key, sha in rules.items() if key not in dates or dates[key].sha256 != sha]
    gone = [key for key in dates if key not in rules]
    return [
        *(f"{name}: the rule of {id_} has changed, and its date has not" for id_, name in changed),
        *(f"{name}: {id_} has a date and no rule" for id_, name in gone),
    ]


def update_rule_dates(experiments: Path, today: datetime.date) -> list[RuleDate]:
    """Write the file anew, with today's date for each rule that has changed; return these rules.

    Rules that are unchanged keep their dates, and rules that are gone lose theirs.
    """
    dates = read_rule_dates(experiments)
    rows, changed = [], []
    for key, sha in sorted(current_rules(experiments)):
        date = dates.get(key)
        if date is None or date.sha256 != sha:
            date = RuleDate(*key, today.isoformat(), sha)
            changed.append(date)
        rows.append(date)
    _write(experiments / FILE, rows)
    return changed


def _write(path: Path, rows: list[RuleDate]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(
            file, ["id", "experiment", "changed", "sha256"], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def main() -> None:
    """Date the rules of this checkout that have changed, and print them."""
    for date in update_rule_dates(TOP / "experiments", datetime.datetime.now(datetime.UTC).date()):
        sys.stdout.write(f"{date.experiment}: {date.id}\n")


if __name__ == "__main__":
    main()
