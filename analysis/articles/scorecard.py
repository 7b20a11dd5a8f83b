"""The scorecard over all runs, with contradictions and causes of deviations."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from analysis.articles.evaluate import (
    DEFINITION_RULES,
    ClaimResult,
    definition_result,
    evaluate_claims,
)
from analysis.data.load import Run, load_run
from analysis.formatting import format_measured, format_published
from pagecage.errors import PagecageError
from pagecage.model.published_figures import (
    CONCLUSION,
    PublishedFigure,
    is_same_rule,
    read_definitions,
    read_rows,
    read_rule_dates,
    read_titles,
    rules_of,
)
from pagecage.model.record import read_records

VERDICTS = (
    "held",
    "not_held",
    "undecided",
    "not_comparable",
    "requirement_missed",
    "no_data",
    "untestable",
    "not_run",
)
"""Verdicts in the order of the totals; each row has exactly one."""


@dataclass(frozen=True)
class ScoredClaim:
    """One row of the scorecard.

    `run` is the id of the evaluated run, None if there is none. `origin` is `article`, or
    `conclusion` for an added row that follows from its conclusions. `rule_changed` is the day on
    which the rule was last changed (ISO 8601), None without a rule.
    """

    id: str
    experiment: str
    says: str
    published: Any
    unit: str
    measured: Any
    low: float | None
    high: float | None
    n: int
    verdict: str
    reason: str
    remark: str
    run: str | None
    origin: str = "article"
    rule_changed: str | None = None


@dataclass(frozen=True)
class Scorecard:
    """All rows, and the articles from which they come."""

    rows: tuple[ScoredClaim, ...]
    articles: Mapping[str, Mapping[str, str]]

    def totals(self) -> dict[str, dict[str, int]]:
        """Return the counts of verdicts by experiment, in the order of their first rows."""
        names = dict.fromkeys(row.experiment for row in self.rows)
        return {
            name: count_verdicts(row for row in self.rows if row.experiment == name)
            for name in names
        }


def count_verdicts(rows: Any) -> dict[str, int]:
    """Return how often each verdict occurs, and the number of rows."""
    counts = Counter(row.verdict for row in rows)
    return {**{verdict: counts[verdict] for verdict in VERDICTS}, "all": counts.total()}


def scorecard(experiments: Path, newest: Mapping[str, Run], only: str | None = None) -> Scorecard:
    """Return the scorecard of the definitions and the newest run of each experiment.

    Raises PagecageError if no row belongs to the experiment `only`.
    """
    rows = read_rows(experiments)
    if only is not None and not any(only in row.experiments for row in rows):
        names = sorted({name for row in rows for name in row.experiments})
        raise PagecageError(
            f"no published figure belongs to {only!r}", f"one of {', '.join(names)}"
        )
    definitions, dates = read_definitions(experiments), read_rule_dates(experiments)
    results = {name: {r.id: r for r in evaluate_claims(run)} for name, run in newest.items()}
    rules, scored = rules_of(definitions), []
    for row in rows:
        if only is None or only in row.experiments:
            names_of_row = row.experiments if only is None else (only,)
            found = {
                name: _answer(row, rule, name, definitions, newest.get(name), results)
                for name, rule in (rules.get(row.id, {}) if not row.untestable else {}).items()
                if name in names_of_row
            }
            days = (date.changed for (id_, _), date in dates.items() if id_ == row.id)
            claim = _score(row, names_of_row, found, definitions, newest)
            scored.append(replace(claim, origin=row.origin, rule_changed=max(days, default=None)))
    return Scorecard(tuple(scored), read_titles(experiments))


def _answer(
    row: PublishedFigure,
    rule: Mapping[str, Any],
    name: str,
    definitions: Mapping[str, Mapping[str, Any]],
    run: Run | None,
    results: Mapping[str, Mapping[str, ClaimResult]],
) -> ClaimResult | str:
    """Return the result of one experiment for a row, or the reason why there is none.

    A run whose plan has an older rule for the row gives no result.
    """
    if rule["rule"] in DEFINITION_RULES:
        published = _number_or_text(row.published)
        about = {"says": row.description, "published": published, "unit": row.unit}
        return definition_result({**about, **rule}, definitions[name])
    if run is None:
        return "its experiment has not been run here"
    claims = run.definition.get("claims", [])
    planned = next((claim for claim in claims if claim["id"] == row.id), None)
    if planned is None or not is_same_rule(planned, rule):
        return "its rule is newer than the newest run"
    return results[name][row.id]


def _score(
    row: PublishedFigure,
    names: Sequence[str],
    found: Mapping[str, ClaimResult | str],
    definitions: Mapping[str, Mapping[str, Any]],
    newest: Mapping[str, Run],
) -> ScoredClaim:
    """Score a row by its own experiment, or by another that tests it if the first has no result."""
    for name in names:
        result = found.get(name)
        if isinstance(result, ClaimResult):
            run = newest.get(name)
            copied: dict[str, Any] = {key: getattr(result, key) for key in _COPIED}
            run_id = str(run.plan["run_id"]) if run else None
            return ScoredClaim(row.id, names[0], **copied, remark=row.remark, run=run_id)
    reason = next((str(found[name]) for name in names if name in found), "")
    if not reason and any(name in definitions for name in names):
        reason = "its experiment has no rule for it yet"
    verdict, reason = "not_run", reason or "its experiment is not defined yet"
    if row.untestable:
        verdict, reason = "untestable", row.untestable
    return ScoredClaim(
        row.id,
        names[0],
        row.description,
        _number_or_text(row.published),
        row.unit,
        measured=None,
        low=None,
        high=None,
        n=0,
        verdict=verdict,
        reason=reason,
        remark=row.remark,
        run=None,
    )


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


_COPIED = ("says", "published", "unit", "measured", "low", "high", "n", "verdict", "reason")


def newest_runs(runs: Path) -> dict[str, Run]:
    """Return the newest run with a record, by experiment. Raises PagecageError for a bad run."""
    found: dict[str, Run] = {}
    for link in sorted(runs.glob("latest-*")):
        name = link.name.removeprefix("latest-")
        folders = (path.resolve() for path in runs.glob(f"*Z-{name}-*") if path.is_dir())
        for path in dict.fromkeys((link.resolve(), *sorted(folders, reverse=True))):
            if next(read_records(path / "records.jsonl"), None) is None:
                continue
            run = load_run(path)
            if run.plan["experiment"] == name:
                found.setdefault(name, run)
                if run.plan["size"] != "smoke":
                    found[name] = run
                    break
    return found


def as_json(card: Scorecard) -> dict[str, Any]:
    """Return the scorecard as JSON data: rows, totals by experiment and overall, and articles."""
    totals = {"experiments": card.totals(), "all": count_verdicts(card.rows)}
    return {
        "rows": [asdict(row) for row in card.rows],
        "totals": totals,
        "articles": dict(card.articles),
    }


def contradiction_sentences(results: Iterable[ClaimResult]) -> list[str]:
    """Return a sentence per contradicted conclusion, for the first lines of a report.

    An undecided or incomparable conclusion contradicts nothing.
    """
    return [
        f"This run contradicts its article ({one.id}): {one.says}, published as"
        f" {format_published(one.published, one.unit).replace('_', ' ')}, measured"
        f" {format_measured(one.measured, one.unit, one.verdict)}."
        for one in results
        if one.origin == CONCLUSION and one.verdict == "not_held"
    ]


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
