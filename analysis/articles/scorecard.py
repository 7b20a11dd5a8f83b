"""The scorecard over all runs, with contradictions and causes of deviations."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.articles.evaluate import (
    ABSOLUTE,
    DEFINITION_RULES,
    KINDS,
    MECHANISM,
    ClaimResult,
    definition_result,
    evaluate_claim,
    kind_of,
)
from analysis.articles.rule_dates import is_same_rule, read_rule_dates, rule_content
from analysis.articles.sides import PUBLISHED_SIZE
from analysis.data.load import Claim, Run, describe_dataset, load_run
from analysis.formatting import MARKS, format_measured, format_published
from pagecage.errors import PagecageError
from pagecage.model.published_figures import (
    CONCLUSION,
    PublishedFigure,
    number_or_text,
    read_definitions,
    read_rows,
    read_titles,
    rules_of,
)
from pagecage.model.record import read_records

VERDICTS = tuple(MARKS)
"""Verdicts in the order of the totals; each row has exactly one."""
DECIDED = ("held", "not_held", "by_construction")


@dataclass(frozen=True)
class ScoredClaim:
    """One row of the scorecard.

    `run` is the id of the evaluated run, None if there is none. `origin` is `article`, or
    `conclusion` for an added row that follows from its conclusions. `rule_changed` is the day on
    which the rule was last changed (ISO 8601), None without a rule. `counts_as` is the kind of the
    figure. Rows with the same `measurement` rest on the same trials and response. `machine` is what
    would decide an undecided row, by `command`; None for other rows.
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
    counts_as: str = ABSOLUTE
    measurement: str = ""
    machine: str | None = None
    command: str | None = None

    @property
    def article(self) -> str:
        return self.id.partition("-")[0]


@dataclass(frozen=True)
class Scorecard:
    """All rows, and the articles from which they come."""

    rows: tuple[ScoredClaim, ...]
    articles: Mapping[str, Mapping[str, str]]

    def totals(self) -> dict[str, dict[str, int]]:
        return totals_by(self.rows, lambda row: row.experiment)

    def totals_by_kind(self) -> dict[str, dict[str, int]]:
        return totals_by(self.rows, lambda row: row.counts_as, KINDS)

    def headline(self) -> str:
        of = self.totals_by_kind()
        mechanism, absolute, construction = (of[kind] for kind in KINDS)
        rows = [row for row in self.rows if row.counts_as == MECHANISM and row.verdict == "held"]
        distinct = len({row.measurement for row in rows})
        return (
            f"{mechanism['held']} of {mechanism['all']} mechanisms are reproduced, by {distinct}"
            f" distinct measurements; {mechanism['not_held']} are not, and"
            f" {_left(mechanism)} are open. Of {absolute['all']} absolute figures of other"
            f" machines, {absolute['held']} are within their factor, {absolute['not_held']} are"
            f" not, and {_left(absolute)} are open. {construction['all']} figures are fixed by the"
            " definition or the set-up and count as neither."
        )


def _left(counts: Mapping[str, int]) -> int:
    return counts["all"] - sum(counts[verdict] for verdict in DECIDED)


def totals_by(
    rows: Sequence[ScoredClaim], group: Callable[[ScoredClaim], str], first: Iterable[str] = ()
) -> dict[str, dict[str, int]]:
    """Return the numbers of verdicts by group; the groups `first` are there without a row too."""
    names = dict.fromkeys((*first, *map(group, rows)))
    return {name: count_verdicts(row for row in rows if group(row) == name) for name in names}


def count_verdicts(rows: Iterable[ScoredClaim]) -> dict[str, int]:
    counts = Counter(row.verdict for row in rows)
    return {**{verdict: counts[verdict] for verdict in VERDICTS}, "all": counts.total()}


def scorecard(experiments: Path, newest: Mapping[str, Run], only: str | None = None) -> Scorecard:
    rows = read_rows(experiments)
    require_tested(rows, only)
    definitions, dates = read_definitions(experiments), read_rule_dates(experiments)
    rules, scored = rules_of(definitions), []
    for row in rows:
        if only is None or only in row.experiments:
            tested_by = row.experiments if only is None else (only,)
            known = {} if row.untestable else rules.get(row.id, {})
            # A rule with the words and the figure of its row, as a plan has it.
            about: dict[str, Any] = {
                "says": row.description,
                "published": number_or_text(row.published),
            }
            about |= {"unit": row.unit, "response": None, "where": {}}
            tests = ((name, known[name]) for name in tested_by if name in known)
            claims = {name: {**about, **rule, "origin": row.origin} for name, rule in tests}
            claim = _score(row, tested_by, claims, definitions, newest)
            days = (date.changed for (id_, _), date in dates.items() if id_ == row.id)
            scored.append(replace(claim, origin=row.origin, rule_changed=max(days, default=None)))
    return Scorecard(tuple(scored), read_titles(experiments))


def _answer(
    claim: Claim, name: str, definitions: Mapping[str, Mapping[str, Any]], run: Run | None
) -> ClaimResult | str:
    """Return the result of one experiment for a claim, or the reason why there is none.

    A run whose plan has an older rule gives no result, unless the rule is a dated correction.
    """
    note = f"; rule corrected on {claim['corrected']}" if claim.get("corrected") else ""
    if claim["rule"] in DEFINITION_RULES:
        result = definition_result(claim, definitions[name])
        return replace(result, reason=result.reason + note)
    if run is None:
        return "its experiment has not been run here"
    claims = run.definition.get("claims", [])
    planned = next((one for one in claims if one["id"] == claim["id"]), None)
    if not note and (planned is None or not is_same_rule(planned, claim)):
        return "its rule is newer than the newest run"
    result = evaluate_claim(run, claim)
    return replace(result, reason=result.reason + note)


def _score(
    row: PublishedFigure,
    names: Sequence[str],
    claims: Mapping[str, Claim],
    definitions: Mapping[str, Mapping[str, Any]],
    newest: Mapping[str, Run],
) -> ScoredClaim:
    reason, scored = "", None
    for name, claim in claims.items():
        result = _answer(claim, name, definitions, newest.get(name))
        if isinstance(result, ClaimResult):
            same = {key: getattr(result, key) for key in _COPIED} | {"remark": row.remark}
            run = newest[name].run_id if name in newest else None
            measurement = _measurement(name, claim)
            scored = ScoredClaim(row.id, names[0], **same, run=run, measurement=measurement)
            break
        reason = reason or result
    if not reason and any(name in definitions for name in names):
        reason = "its experiment has no rule for it yet"
    scored = scored or ScoredClaim(
        row.id,
        names[0],
        row.description,
        number_or_text(row.published),
        row.unit,
        measured=None,
        low=None,
        high=None,
        n=0,
        verdict="untestable" if row.untestable else "not_run",
        reason=row.untestable or reason or "its experiment is not defined yet",
        remark=row.remark,
        run=None,
        counts_as=next(map(kind_of, claims.values()), ABSOLUTE),
    )
    if not claims or scored.verdict in DECIDED:
        return scored
    name, claim = next(iter(claims.items()))
    machine, command = what_decides(name, claim, definitions[name], scored.verdict, scored.n)
    return replace(scored, machine=machine, command=command)


_BY_RESPONSE = {
    "loads_": "a machine whose processor samples loads (perf mem), without a hypervisor",
    "lower_device_": "a machine whose data lie on a stacked disk, such as LVM or LUKS",
    "pass_last_tenth_": "a machine that nothing else uses for a day",
    "pass_hike_": "a machine that nothing else uses for a day",
}
"""Machines by the beginning of a response's name."""
_REPEATS, _MANY_REPEATS = 3, 10
"""Repeats for a figure that rests on one trial, and for one whose interval is too wide."""


def what_decides(
    experiment: str, claim: Claim, definition: Mapping[str, Any], verdict: str, n: int
) -> tuple[str, str]:
    """Return the machine that would decide a claim with this verdict, and the command."""
    command = f"make experiment NAME={experiment} SIZE={PUBLISHED_SIZE}"
    response = str(claim.get("response") or "")
    if claim.get("over_boot"):
        return "a machine that is restarted between two parts of the run", f"{command} RESUME=1"
    if verdict == "undecided":  # so this machine measures it
        repeats = _REPEATS if n < 2 else _MANY_REPEATS
        return "the same machine, with more repeats", f"{command} REPEATS={repeats}"
    for beginning, machine in _BY_RESPONSE.items():
        if response.startswith(beginning):
            return machine, command
    if claim["rule"] == "decoded":
        return "a kernel whose functions can be traced, such as the guest's", f"{command} HOST=vm"
    size = (definition.get("sizes") or {}).get(PUBLISHED_SIZE) or {}
    data = describe_dataset(definition, PUBLISHED_SIZE) if size.get("dataset") else ""
    return f"a real CPU{data and f' with memory and disk for {data}'}", command


_OF_THE_RULE = ("rule", "published", "unit", "tolerance_factor", "needs")


def _measurement(experiment: str, claim: Claim) -> str:
    """Return a text that two claims share if they rest on the same trials and response."""
    content = {k: v for k, v in rule_content(claim).items() if k not in _OF_THE_RULE}
    return f"{experiment} {json.dumps(content, sort_keys=True)}"


_COPIED = (
    *("says", "published", "unit", "measured", "low", "high", "n", "verdict", "reason"),
    "counts_as",
)


def require_tested(rows: Sequence[PublishedFigure], experiment: str | None) -> None:
    if experiment is not None and not any(experiment in row.experiments for row in rows):
        names = sorted({name for row in rows for name in row.experiments})
        hint = f"one of {', '.join(names)}"
        raise PagecageError(f"no published figure belongs to {experiment!r}", hint)


def newest_runs(runs: Path) -> dict[str, Run]:
    found: dict[str, Run] = {}
    for link in sorted(runs.glob("latest-*")):
        name = link.name.removeprefix("latest-")
        folders = (path.resolve() for path in runs.glob(f"*Z-{name}-*") if path.is_dir())
        for path in dict.fromkeys((link.resolve(), *sorted(folders, reverse=True))):
            if next(read_records(path / "records.jsonl"), None) is None:
                continue
            run = load_run(path)
            if run.experiment == name:
                found.setdefault(name, run)
                if run.size != "smoke":
                    found[name] = run
                    break
    return found


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
_TESTS = {"tested", "untested"}
_PLACE = re.compile(r"\{(\d{3}-\d+)\}")


@dataclass(frozen=True)
class Deviation:
    """The cause for which some rows do not hold.

    `cause` and `tested` may contain `{ID}`, which stands for the measured figure of that row.
    `evidence` names experiments, or addresses of sources. `tested` states which measurement could
    have refuted the cause, and did not. A cause without one is plausible, and `untested` states
    what would test it.
    """

    claims: tuple[str, ...]
    cause: str
    evidence: tuple[str, ...]
    tested: str = ""
    untested: str = ""


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
        keys = set(table)
        if keys - _TESTS != _KEYS or len(keys & _TESTS) != 1 or not all(table.values()):
            raise PagecageError(
                f"{path}: the deviation of {table.get('claims')} is incomplete",
                f"give it {', '.join(sorted(_KEYS))}, and {' or '.join(sorted(_TESTS))}",
            )
    found = tuple(
        Deviation(**{**t, "claims": tuple(t["claims"]), "evidence": tuple(t["evidence"])})
        for t in tables
    )
    ids = [id_ for deviation in found for id_ in deviation.claims]
    if twice := sorted({id_ for id_ in ids if ids.count(id_) > 1}):
        raise PagecageError(f"{path} explains {twice[0]} twice", "remove one explanation")
    return found


def unexplained(rows: Iterable[ScoredClaim], deviations: Sequence[Deviation]) -> list[str]:
    explained = {id_ for deviation in deviations for id_ in deviation.claims}
    return [row.id for row in rows if row.verdict == "not_held" and row.id not in explained]


def with_figures(cause: str, figures: Mapping[str, str]) -> str:
    if missing := [id_ for id_ in _PLACE.findall(cause) if id_ not in figures]:
        raise PagecageError(
            f"{FILE} names {missing[0]}, which has no measured figure", "correct it"
        )
    return _PLACE.sub(lambda place: figures[place[1]], cause)
