"""The scorecard over all runs, with contradictions and causes of deviations."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    RuleDate,
    is_same_rule,
    read_definitions,
    read_rows,
    read_rule_dates,
    read_titles,
    rules_of,
)

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
    scorer = _ClaimScorer(read_definitions(experiments), newest)
    dates = read_rule_dates(experiments)
    scored = (
        _dated(_score(row, scorer, (only,) if only is not None else row.experiments), row, dates)
        for row in rows
        if _is_selected(row, only)
    )
    return Scorecard(tuple(scored), read_titles(experiments))


def _dated(
    scored: ScoredClaim, row: PublishedFigure, dates: Mapping[tuple[str, str], RuleDate]
) -> ScoredClaim:
    """Return the row with its origin, and the day on which one of its rules last changed."""
    days = [date.changed for (id_, _), date in dates.items() if id_ == row.id]
    return replace(scored, origin=row.origin, rule_changed=max(days, default=None))


def _is_selected(row: PublishedFigure, only: str | None) -> bool:
    return only is None or only in row.experiments


def newest_runs(runs: Path) -> dict[str, Run]:
    """Return the newest run with a record, by experiment.

    A run at smoke size leaves most treatments out. It is used only if no larger run exists.
    """
    return dict(_newest(runs))


def _newest(runs: Path) -> Iterator[tuple[str, Run]]:
    for link in sorted(runs.glob("latest-*")):
        name = link.name.removeprefix("latest-")
        older = sorted(
            (path.resolve() for path in runs.glob(f"*Z-{name}-*") if path.is_dir()), reverse=True
        )
        run = _first_above_smoke(dict.fromkeys((link.resolve(), *older)), name)
        if run:
            yield name, run


def _first_above_smoke(paths: Iterable[Path], name: str) -> Run | None:
    """Return the first run above smoke size, otherwise the first run; later runs are not read."""
    smoke = None
    for run in filter(None, map(_loaded, paths)):
        if run.plan["experiment"] == name:
            if run.plan["size"] != "smoke":
                return run
            smoke = smoke or run
    return smoke


def _loaded(path: Path) -> Run | None:
    try:
        return load_run(path)
    except PagecageError:
        return None


class _ClaimScorer:
    """Scoring of published figures from the current definitions and the newest runs."""

    def __init__(
        self, definitions: Mapping[str, Mapping[str, Any]], latest: Mapping[str, Run]
    ) -> None:
        self.definitions, self.latest, self.rules = definitions, latest, rules_of(definitions)
        self._results = {
            name: {r.id: r for r in evaluate_claims(run)} for name, run in latest.items()
        }

    def answer(self, row: PublishedFigure, name: str) -> ClaimResult | str:
        """Return the result of one experiment for a row, or the reason why there is none.

        A run whose plan has an older rule for the row gives no result.
        """
        rule = self.rules[row.id][name]
        if rule["rule"] in DEFINITION_RULES:
            return definition_result(_completed(row, rule), self.definitions[name])
        run = self.latest.get(name)
        if run is None:
            return "its experiment has not been run here"
        planned_rule = next(
            (claim for claim in run.definition.get("claims", []) if claim["id"] == row.id), None
        )
        if planned_rule is None or not is_same_rule(planned_rule, rule):
            return "its rule is newer than the newest run"
        return self._results[name][row.id]


def _completed(row: PublishedFigure, rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule with the statement, figure and unit of its row, as plans have them."""
    return {
        "says": row.description,
        "published": _number_or_text(row.published),
        "unit": row.unit,
        **rule,
    }


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _score(row: PublishedFigure, scorer: _ClaimScorer, names: Sequence[str]) -> ScoredClaim:
    """Score a row by its own experiment, or by another that tests it if the first has no result."""
    if row.untestable:
        return _without_measurement(row, names[0], "untestable", row.untestable)
    testing = [name for name in names if name in scorer.rules.get(row.id, {})]
    if not testing:
        built = any(name in scorer.definitions for name in names)
        reason = (
            "its experiment has no rule for it yet"
            if built
            else "its experiment is not defined yet"
        )
        return _without_measurement(row, names[0], "not_run", reason)
    answers = {name: scorer.answer(row, name) for name in testing}
    for name, result in answers.items():
        if isinstance(result, ClaimResult):
            return _with_measurement(row, names[0], result, scorer.latest.get(name))
    return _without_measurement(row, names[0], "not_run", str(answers[testing[0]]))


def _without_measurement(
    row: PublishedFigure, experiment: str, verdict: str, reason: str
) -> ScoredClaim:
    return ScoredClaim(
        row.id,
        experiment,
        row.description,
        _number_or_text(row.published),
        row.unit,
        None,
        None,
        None,
        0,
        verdict,
        reason,
        row.remark,
        None,
    )


def _with_measurement(
    row: PublishedFigure, experiment: str, result: ClaimResult, run: Run | None
) -> ScoredClaim:
    return ScoredClaim(
        row.id,
        experiment,
        result.says,
        result.published,
        result.unit,
        result.measured,
        result.low,
        result.high,
        result.n,
        result.verdict,
        result.reason,
        row.remark,
        str(run.plan["run_id"]) if run else None,
    )


def as_json(card: Scorecard) -> dict[str, Any]:
    """Return the scorecard as JSON data: rows, totals by experiment and overall, and articles."""
    totals = {"experiments": card.totals(), "all": count_verdicts(card.rows)}
    return {
        "rows": [asdict(row) for row in card.rows],
        "totals": totals,
        "articles": dict(card.articles),
    }


def contradicted_conclusions(results: Iterable[ClaimResult]) -> list[ClaimResult]:
    """Return the conclusions that were judged and did not hold, in the order of the results.

    An undecided or incomparable conclusion contradicts nothing.
    """
    return [r for r in results if r.origin == CONCLUSION and r.verdict == "not_held"]


def contradiction_sentences(results: Iterable[ClaimResult]) -> list[str]:
    """Return a sentence per contradicted conclusion, for the first lines of a report."""
    return [
        f"This run contradicts its article ({result.id}): {result.says}, published as"
        f" {format_published(result.published, result.unit).replace('_', ' ')}, measured"
        f" {format_measured(result.measured, result.unit, result.verdict)}."
        for result in contradicted_conclusions(results)
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
