"""Ratios compared with the published ones, on real CPUs and in emulated guests."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from analysis.articles.evaluate import RATIO_RULES
from analysis.articles.scorecard import DECIDED, Scorecard, ScoredClaim, count_verdicts, scorecard
from analysis.articles.sides import PUBLISHED_SIZE, included_ratio, is_within_factor
from analysis.cells import included_values, treatments
from analysis.data.load import Claim, Run
from analysis.formatting import format_in_unit, format_published, unit_scale
from analysis.stats import MedianSummary
from pagecage.errors import PagecageError
from pagecage.units import format_bytes


def published_ratios(run: Run) -> list[str]:
    claims = run.definition.get("claims", [])
    ratios = [claim for claim in claims if claim["rule"] in RATIO_RULES]
    plain = [
        claim
        for claim in claims
        if claim["rule"] == "absolute"
        and not (claim.get("per") or claim.get("statistic"))
        and (isinstance(claim["published"], int | float) and claim["published"])
    ]
    return [_published(one, ratios, plain) for one in run.definition.get("findings", [])]


def _published(finding: Claim, ratios: Sequence[Claim], plain: Sequence[Claim]) -> str:
    def is_about(claim: Claim, **sides: str) -> bool:
        return claim["response"] == finding["response"] and all(
            (claim.get(key) or {}) == (finding.get(side) or {}) for key, side in sides.items()
        )

    if not finding.get("over"):
        return ""
    for claim in ratios:
        if is_about(claim, where="where", over="over"):
            return format_published(claim["published"], "x")
    sides = [next((c for c in plain if is_about(c, where=s)), {}) for s in ("where", "over")]
    if not all(sides):
        return ""
    over, under = (float(claim["published"]) * unit_scale(claim["unit"]) for claim in sides)
    parts = " / ".join(format_published(claim["published"], claim["unit"]) for claim in sides)
    return f"{format_in_unit(over / under, 'x')} ({parts})"


_RESPONSES = ("device_read_bytes", "device_reads", "major_faults", "minor_faults", "cpu_seconds")
"""Responses that are compared besides an experiment's own."""


def guest_ratios(runs: Iterable[Run]) -> Iterator[tuple[str, str, list[float]]]:
    """Yield the ratios of each experiment that has a run of the same size on both hosts.

    Each comes with its experiment and response: the guest's figure divided by the native one, one
    ratio of medians per treatment that both runs have.
    """
    last = defaultdict[tuple[str, str], dict[bool, Run]](dict)
    for run in runs:
        last[run.experiment, run.size][run.is_emulated] = run
    for (experiment, _), by_kind in sorted(last.items(), key=lambda item: item[0]):
        if len(by_kind) < 2:
            continue
        native, guest = by_kind[False], by_kind[True]
        for response in dict.fromkeys((native.response, *_RESPONSES)):
            pairs = [
                [included_values(run, treatment, response) for run in (guest, native)]
                for treatment in treatments(native)
            ]
            medians = [tuple(map(statistics.median, pair)) for pair in pairs if all(pair)]
            if ratios := [there / here for there, here in medians if here]:
                yield experiment, response, ratios


@dataclass(frozen=True)
class RatioGrid:
    """A grid of ratios, by the level of its rows and of its columns.

    `table` is its table of the definition. `ratios` lacks the combinations that have no included
    trial on both sides.
    """

    table: Claim
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    ratios: Mapping[tuple[str, str], MedianSummary]

    @property
    def tolerance_factor(self) -> float:
        return float(self.table.get("tolerance_factor", 1.5))

    def is_as_published(self, ratio: MedianSummary) -> bool:
        published = self.table.get("published")
        return published is not None and is_within_factor(
            ratio.middle, published, self.tolerance_factor
        )


def ratio_tables(run: Run) -> list[RatioGrid]:
    found = []
    for table in run.definition.get("ratio_tables", []):
        ratios = {}
        response = table.get("response") or run.response
        for key in itertools.product(run.factors[table["rows"]], run.factors[table["columns"]]):
            place = {table["rows"]: key[0], table["columns"]: key[1]}
            common = {**table.get("where", {}), **place}
            over, under = {**common, **table["of"]}, {**common, **table["over"]}
            if ratio := included_ratio(run, response, over, under):
                ratios[key] = ratio
        if ratios:
            rows, columns = (
                tuple(level for level in run.factors[table[name]] if level in used)
                for name, used in zip(("rows", "columns"), zip(*ratios, strict=True), strict=True)
            )
            found.append(RatioGrid(table, rows, columns, ratios))
    return found


REAL_CPU, EMULATED_GUEST, WITHOUT_RUN = "real CPU", "emulated guest", "without a run"
HOST_CLASSES = (REAL_CPU, EMULATED_GUEST)
"""Classes of hosts in order of preference."""


@dataclass(frozen=True)
class OtherRun:
    """A run of another machine, and the ids of the rows that it decides.

    `same` and `different` are decided here too, with and without the same verdict; `alone` are not.
    """

    run: Run
    machine: str
    same: tuple[str, ...]
    different: tuple[str, ...]
    alone: tuple[str, ...]


@dataclass(frozen=True)
class HostedScorecard:
    """The scorecard, all runs that were evaluated for it, by id, and those of other machines."""

    card: Scorecard
    runs: Mapping[str, Run]
    others: tuple[OtherRun, ...] = ()

    def host_class(self, row: ScoredClaim) -> str:
        if row.run is None:
            return WITHOUT_RUN
        machines = {other.run.run_id: other.machine for other in self.others}
        return machines.get(row.run) or host_class(self.runs[row.run])

    def with_figure(self) -> list[ScoredClaim]:
        return [row for row in self.card.rows if row.run and _strength(row) >= _MEASURED]


def host_class(run: Run) -> str:
    """Return the class of a run's host; a guest that KVM runs has a real CPU."""
    return EMULATED_GUEST if run.is_emulated else REAL_CPU


def real_cpu_sentence(run: Run) -> str | None:
    """Return the machine of a run on a real CPU, which decides its times; None for other runs."""
    machine = machine_of(run)
    if machine is None or host_class(run) != REAL_CPU:
        return None
    devices = (trial.record.device for trial in run.trials)
    loop = next((device for device in devices if device.own_disk), None)
    disk = f"; the disk is {loop.node}, pagecage's own: {loop.own_disk} by loop" if loop else ""
    return f"Measured on a real CPU: {machine}{disk}"


def machine_of(run: Run) -> str | None:
    facts = next((facts for facts in run.facts if facts.get("cpu_model")), None)
    if facts is None:
        return None
    memory = format_bytes(facts["memory_bytes"]) if facts.get("memory_bytes") else "unknown"
    return (
        f"{facts['cpu_model']}, {facts['cpus']} processors, {memory} of memory, kernel"
        f" {facts['kernel']}"
    )


def runs_by_class(runs: Iterable[Run]) -> dict[str, dict[str, Run]]:
    """Return one run by class of host and by experiment, the newest above smoke size."""
    found: dict[str, dict[str, Run]] = {name: {} for name in HOST_CLASSES}
    # An id begins with the time of its run.
    for run in sorted(runs, key=lambda run: (run.size != "smoke", run.run_id)):
        found[host_class(run)][run.experiment] = run
    return found


def _evaluated_runs(runs: Iterable[Run]) -> list[tuple[str, dict[str, Run]]]:
    """Return classes of hosts with one run by experiment, in order of preference.

    Each class is there twice: at the published size, whose times can be compared, and below it. A
    run at smoke size is left out if its class has a larger one.
    """
    known = list(runs)
    best = runs_by_class(known)
    published = runs_by_class(run for run in known if run.size == PUBLISHED_SIZE)
    smaller = runs_by_class(
        run
        for run in known
        if run.size != PUBLISHED_SIZE
        and (run.size != "smoke" or best[host_class(run)][run.experiment].size == "smoke")
    )
    return [(name, found[name]) for name in HOST_CLASSES for found in (published, smaller)]


def chosen_runs(runs: Iterable[Run]) -> list[Run]:
    return [run for _, by_name in _evaluated_runs(runs) for run in by_name.values()]


def run_by_experiment(runs: Iterable[Run]) -> dict[str, Run]:
    """Return one run by experiment: above smoke size rather than not, then on a real CPU."""
    ordered = sorted(runs, key=lambda run: (run.size != "smoke", not run.is_emulated, run.run_id))
    return {run.experiment: run for run in ordered}


def hosted_scorecard(
    experiments: Path, runs: Iterable[Run], only: str | None = None, others: Sequence[Run] = ()
) -> HostedScorecard:
    """Evaluate every published figure on the runs of each class, and keep one result for each.

    A decided result is preferred to a figure that cannot be compared, and that to none; then a real
    CPU, then this machine to `others`, runs of other machines. Raises PagecageError if no row
    belongs to the experiment `only`, or if one of the others is among the runs.
    """
    evaluated = _evaluated_runs(runs)
    by_id = {run.run_id: run for _, one in evaluated for run in one.values()}
    if twice := next((r.run_id for r in others if r.run_id in by_id), None):
        raise PagecageError(f"{twice} is already among the runs", "leave it out of --from")
    cards = [scorecard(experiments, by_name, only) for _, by_name in evaluated]
    names, own, compared = [name for name, _ in evaluated], cards[:], []
    for run in others:
        machine = machine_of(run) or "an unknown machine"
        theirs = scorecard(experiments, {run.experiment: run}, only)
        found: dict[str, list[str]] = {"same": [], "different": [], "alone": []}
        for row, ours in zip(theirs.rows, _preferred(own, names), strict=True):
            if row.verdict in DECIDED and row.run:
                is_same = "same" if row.verdict == ours.verdict else "different"
                found[is_same if ours.verdict in DECIDED else "alone"].append(row.id)
        ids = {name: tuple(of_name) for name, of_name in found.items()}
        compared.append(OtherRun(run, machine, **ids))
        names.append(machine)
        cards.append(theirs)
        by_id[run.run_id] = run
    card = replace(cards[0], rows=_preferred(cards, names))
    return HostedScorecard(card, by_id, tuple(compared))


def hosted_as_json(scored: HostedScorecard) -> dict[str, Any]:
    card, others = scored.card, [{**vars(one), "run": one.run.run_id} for one in scored.others]
    return {
        "headline": card.headline(),
        "rows": [
            {**asdict(row), "host_class": scored.host_class(row) if row.run else None}
            for row in card.rows
        ],
        "totals": {
            "experiments": card.totals(),
            "kinds": card.totals_by_kind(),
            "all": count_verdicts(card.rows),
        },
        "articles": dict(card.articles),
        "others": others,
    }


def _preferred(cards: Sequence[Scorecard], names: Sequence[str]) -> tuple[ScoredClaim, ...]:
    """Return the best of each row; `names` are the hosts of the cards."""
    found = []
    for rows in zip(*(card.rows for card in cards), strict=True):
        first = max(rows, key=_strength)  # max() returns the first of equal ones
        others = [
            f"{name}: {row.verdict.replace('_', ' ')} ({row.run})"
            for name, row in zip(names, rows, strict=True)
            if row is not first and row.verdict != first.verdict and _strength(row) >= _MEASURED
        ]
        reason = "; ".join([first.reason, *others])
        found.append(replace(first, reason=reason) if others else first)
    return tuple(found)


_MEASURED = 2


def _strength(row: ScoredClaim) -> int:
    if row.verdict in DECIDED:
        return _MEASURED + 1
    if row.measured is None or row.verdict == "no_data":
        return int(row.run is not None)
    return _MEASURED
