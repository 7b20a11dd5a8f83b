"""Every published figure, and what this machine's newest runs say about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.claims.evaluate import ClaimResult, config_result, evaluate_claims
from analysis.data.load import Run, load_run
from pagecage.errors import PagecageError
from pagecage.model.published_figures import PublishedFigure, read_definitions, read_rows, read_titles, rules_of

VERDICTS = ("held", "not_held", "not_comparable", "no_data", "untestable", "not_run")
"""In the order in which totals are told; every row has exactly one."""
_RULE = ("rule", "response", "where", "over", "key")


@dataclass(frozen=True)
class ScoredClaim:
    """One row of the scorecard. `run` names the run that `measured` comes from; None where there is none."""

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
    why: str
    remark: str
    run: str | None


@dataclass(frozen=True)
class Scorecard:
    """All rows, the articles they come from, and how often each verdict stands, by experiment and in all."""

    rows: tuple[ScoredClaim, ...]
    articles: Mapping[str, Mapping[str, str]]

    def totals(self) -> dict[str, dict[str, int]]:
        """Counts by experiment, in the order of their first rows."""
        names = dict.fromkeys(row.experiment for row in self.rows)
        return {name: count(row for row in self.rows if row.experiment == name) for name in names}


def count(rows: Any) -> dict[str, int]:
    """How often each verdict stands, and how many rows there are."""
    told = Counter(row.verdict for row in rows)
    return {**{verdict: told[verdict] for verdict in VERDICTS}, "all": told.total()}


def scorecard(experiments: Path, newest: Mapping[str, Run], only: str | None = None) -> Scorecard:
    """The scorecard from the definitions, the articles and the newest runs, by experiment.

    Raises PagecageError when `only` is no experiment of any row.
    """
    rows = read_rows(experiments)
    if only is not None and not any(only in row.experiments for row in rows):
        known = sorted({name for row in rows for name in row.experiments})
        raise PagecageError(f"no published figure belongs to {only!r}", f"one of {', '.join(known)}")
    ground = _ClaimScorer(read_definitions(experiments), newest)
    scored = (
        _score(row, ground, (only,) if only is not None else row.experiments) for row in rows if _is_asked(row, only)
    )
    return Scorecard(tuple(scored), read_titles(experiments))


def _is_asked(row: PublishedFigure, only: str | None) -> bool:
    return only is None or only in row.experiments


def newest_runs(runs: Path) -> dict[str, Run]:
    """The newest run of each experiment that has a record; one that has just begun hides no older one.

    A run at smoke size shows that an experiment works and leaves most treatments out: it counts only where no other is.
    """
    return dict(_newest(runs))


def _newest(runs: Path) -> Iterator[tuple[str, Run]]:
    for link in sorted(runs.glob("latest-*")):
        name = link.name.removeprefix("latest-")
        older = sorted((path.resolve() for path in runs.glob(f"*Z-{name}-*") if path.is_dir()), reverse=True)
        run = _that_counts(dict.fromkeys((link.resolve(), *older)), name)
        if run:
            yield name, run


def _that_counts(paths: Iterable[Path], name: str) -> Run | None:
    """The first run of the experiment above smoke size, else the first; no run after it is read."""
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
    """What rows are judged on: the definitions as they stand, the newest runs, and what these say."""

    def __init__(self, definitions: Mapping[str, Mapping[str, Any]], latest: Mapping[str, Run]) -> None:
        self.definitions, self.latest, self.rules = definitions, latest, rules_of(definitions)
        self._results = {name: {r.id: r for r in evaluate_claims(run)} for name, run in latest.items()}

    def answer(self, row: PublishedFigure, name: str) -> ClaimResult | str:
        """What one experiment says about a row, or why it says nothing.

        A run that was judged by another rule than today's says nothing.
        """
        rule = self.rules[row.id][name]
        if rule["rule"] == "config":
            return config_result(_completed(row, rule), self.definitions[name])
        run = self.latest.get(name)
        if run is None:
            return "its experiment has not been run here"
        then = next((claim for claim in run.definition.get("claims", []) if claim["id"] == row.id), None)
        if then is None or any((then.get(key) or None) != (rule.get(key) or None) for key in _RULE):
            return "its rule is newer than the newest run"
        return self._results[name][row.id]


def _completed(row: PublishedFigure, rule: Mapping[str, Any]) -> dict[str, Any]:
    """A rule with what its row says and it does not, as a plan has it."""
    return {"says": row.description, "published": _number_or_text(row.published), "unit": row.unit, **rule}


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _score(row: PublishedFigure, ground: _ClaimScorer, names: Sequence[str]) -> ScoredClaim:
    """The row's own experiment answers; another that tests it too does where that one has not been run."""
    if row.untestable:
        return _unmeasured(row, names[0], "untestable", row.untestable)
    able = [name for name in names if name in ground.rules.get(row.id, {})]
    if not able:
        built = any(name in ground.definitions for name in names)
        why = "its experiment has no rule for it yet" if built else "its experiment is not built yet"
        return _unmeasured(row, names[0], "not_run", why)
    answers = {name: ground.answer(row, name) for name in able}
    for name, result in answers.items():
        if isinstance(result, ClaimResult):
            return _measured(row, names[0], result, ground.latest.get(name))
    return _unmeasured(row, names[0], "not_run", str(answers[able[0]]))


def _unmeasured(row: PublishedFigure, experiment: str, verdict: str, why: str) -> ScoredClaim:
    return ScoredClaim(
        row.id, experiment, row.description, _number_or_text(row.published), row.unit, None, None, None, 0, verdict,
        why, row.remark, None,
    )  # fmt: skip


def _measured(row: PublishedFigure, experiment: str, result: ClaimResult, run: Run | None) -> ScoredClaim:
    return ScoredClaim(
        row.id, experiment, result.says, result.published, result.unit, result.measured, result.low, result.high,
        result.n, result.verdict, result.why, row.remark, str(run.plan["run_id"]) if run else None,
    )  # fmt: skip


def as_json(card: Scorecard) -> dict[str, Any]:
    """The scorecard as data: rows, totals by experiment and in all, articles."""
    totals = {"experiments": card.totals(), "all": count(card.rows)}
    return {"rows": [asdict(row) for row in card.rows], "totals": totals, "articles": dict(card.articles)}
