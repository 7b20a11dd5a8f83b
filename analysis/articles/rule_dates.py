"""The day on which each rule that scores a published figure was last changed."""

from __future__ import annotations

import csv
import datetime
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from pagecage.checkout import TOP
from pagecage.model.json_codec import Json, JsonView
from pagecage.model.published_figures import read_definitions, rules_of
from pagecage.whole_files import text_sha256

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
