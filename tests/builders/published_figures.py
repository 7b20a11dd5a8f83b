"""Consistency of the published figures and the rules that test them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagecage.model.published_figures import PublishedFigure, rules_of


def mismatches(
    rows: list[PublishedFigure], definitions: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return a sentence per mismatch of rows and rules.

    A rule needs a row, and a row needs either a rule or a reason why it is untestable.
    """
    rules = rules_of(definitions)
    return [
        *_wrong_rules(rules, {row.id: row for row in rows}),
        *_rows_with_both_or_neither(rows, rules),
        *_missing_experiments(rows, definitions),
    ]


def _wrong_rules(rules: Mapping[str, Any], known: Mapping[str, PublishedFigure]) -> list[str]:
    """Return the rules without a row, and those of an experiment that the row does not name."""
    unknown = [
        f"{name}: no article has {id_}"
        for id_, by in rules.items()
        for name in by
        if id_ not in known
    ]
    foreign = [
        f"{name}: {id_} belongs to {' '.join(known[id_].experiments)}"
        for id_, by in rules.items()
        for name in by
        if id_ in known and name not in known[id_].experiments
    ]
    return [*unknown, *foreign]


def _rows_with_both_or_neither(rows: list[PublishedFigure], rules: Mapping[str, Any]) -> list[str]:
    """Return the rows with a rule and a reason why they are untestable, and those without both."""
    both = [
        f"{row.id}: a rule and a reason why it is untestable"
        for row in rows
        if row.untestable and row.id in rules
    ]
    neither = [
        f"{row.id}: no rule and no reason"
        for row in rows
        if not row.untestable and row.id not in rules
    ]
    return [*both, *neither]


def _missing_experiments(
    rows: list[PublishedFigure], definitions: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    missing = {
        name
        for row in rows
        if not row.untestable
        for name in row.experiments
        if name not in definitions
    }
    return [f"there is no experiment {name}" for name in sorted(missing)]
