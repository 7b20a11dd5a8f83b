"""The scorecard over runs on hosts with a real CPU and in emulated guests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.claims.scorecard import Scorecard, ScoredClaim, as_json, scorecard
from analysis.data.load import Run
from pagecage.units import format_bytes

REAL_CPU, EMULATED_GUEST, WITHOUT_RUN = "real CPU", "emulated guest", "without a run"
HOST_CLASSES = (REAL_CPU, EMULATED_GUEST)
"""Classes of hosts in order of preference."""
_DECIDED = ("held", "not_held")


@dataclass(frozen=True)
class HostedScorecard:
    """The scorecard, and all runs that were evaluated for it, by id."""

    card: Scorecard
    runs: Mapping[str, Run]

    def host_class(self, row: ScoredClaim) -> str:
        """Return the class of the host whose run measured a row."""
        return WITHOUT_RUN if row.run is None else host_class(self.runs[row.run])

    def with_figure(self) -> list[ScoredClaim]:
        """Return the rows for which a run has a figure of included trials."""
        return [row for row in self.card.rows if row.run and _strength(row) >= _MEASURED]


def host_class(run: Run) -> str:
    """Return the class of a run's host; a guest that KVM runs has a real CPU."""
    return EMULATED_GUEST if run.is_emulated else REAL_CPU


def real_cpu_sentence(run: Run) -> str | None:
    """Return the machine of a run on a real CPU, which decides its times; None for other runs."""
    facts = next((facts for facts in run.facts if facts.get("cpu_model")), None)
    if facts is None or host_class(run) != REAL_CPU:
        return None
    memory = format_bytes(facts["memory_bytes"]) if facts.get("memory_bytes") else "unknown"
    return (
        f"Measured on a real CPU: {facts['cpu_model']}, {facts['cpus']} processors, {memory} of"
        f" memory, kernel {facts['kernel']}{_own_disk(run)}"
    )


def _own_disk(run: Run) -> str:
    """Return the end of a sentence about a disk that pagecage made by loop; empty without one."""
    devices = [trial.record.device for trial in run.trials]
    own = next((device for device in devices if device.own_disk), None)
    return f"; the disk is {own.node}, pagecage's own: {own.own_disk} by loop" if own else ""


def runs_by_class(runs: Iterable[Run]) -> dict[str, dict[str, Run]]:
    """Return one run by class of host and by experiment, the newest above smoke size.

    A run at smoke size is used only if the class has no larger one.
    """
    found: dict[str, dict[str, Run]] = {name: {} for name in HOST_CLASSES}
    for run in sorted(runs, key=_preference):
        found[host_class(run)][run.plan["experiment"]] = run
    return found


def _preference(run: Run) -> tuple[bool, str]:
    """Return a key that sorts preferred runs last; an id begins with the time of its run."""
    return not _is_smoke(run), str(run.plan["run_id"])


def evaluated_runs(runs: Iterable[Run]) -> list[tuple[str, dict[str, Run]]]:
    """Return classes of hosts with one run by experiment, in order of preference.

    Each class is there twice: at the published size, whose times can be compared, and below it. A
    run at smoke size is left out if its class has a larger one.
    """
    known = list(runs)
    larger = {(host_class(run), run.plan["experiment"]) for run in known if not _is_smoke(run)}
    published = [run for run in known if run.plan["size"] == "full"]
    smaller = [
        run
        for run in known
        if run.plan["size"] != "full"
        and not (_is_smoke(run) and (host_class(run), run.plan["experiment"]) in larger)
    ]
    by_class = [runs_by_class(published), runs_by_class(smaller)]
    return [(name, found[name]) for name in HOST_CLASSES for found in by_class]


def _is_smoke(run: Run) -> bool:
    return bool(run.plan["size"] == "smoke")


def chosen_runs(runs: Iterable[Run]) -> list[Run]:
    """Return the runs that are evaluated."""
    return [run for _, by_name in evaluated_runs(runs) for run in by_name.values()]


def run_by_experiment(runs: Iterable[Run]) -> dict[str, Run]:
    """Return one run by experiment: above smoke size rather than not, then on a real CPU."""
    found: dict[str, Run] = {}
    for run in (run for by_name in runs_by_class(runs).values() for run in by_name.values()):
        first = found.setdefault(run.plan["experiment"], run)
        if first.plan["size"] == "smoke" != run.plan["size"]:
            found[run.plan["experiment"]] = run
    return found


def hosted_scorecard(
    experiments: Path, runs: Iterable[Run], only: str | None = None
) -> HostedScorecard:
    """Evaluate every published figure on the runs of each class, and keep one result for each.

    A decided result is preferred to a figure that cannot be compared, and that to none. Of two
    equal kinds the one from a real CPU is kept. Its reason states another verdict of the other
    class. Raises PagecageError if no row belongs to the experiment `only`.
    """
    evaluated = evaluated_runs(runs)
    cards = [scorecard(experiments, by_name, only) for _, by_name in evaluated]
    rows = zip(*(card.rows for card in cards), strict=True)
    names = [name for name, _ in evaluated]
    by_id = {str(run.plan["run_id"]): run for _, one in evaluated for run in one.values()}
    preferred = tuple(_preferred(each, names) for each in rows)
    return HostedScorecard(replace(cards[0], rows=preferred), by_id)


def hosted_as_json(scored: HostedScorecard) -> dict[str, Any]:
    """Return the scorecard as JSON data; docs/FORMAT.md lists the keys."""
    data = as_json(scored.card)
    for row, line in zip(scored.card.rows, data["rows"], strict=True):
        line["host_class"] = scored.host_class(row) if row.run else None
    return data


def _preferred(rows: Sequence[ScoredClaim], names: Sequence[str]) -> ScoredClaim:
    first = max(rows, key=_strength)  # max() returns the first of equal ones
    others = [
        f"{name}: {row.verdict.replace('_', ' ')} ({row.run})"
        for name, row in zip(names, rows, strict=True)
        if row is not first and row.verdict != first.verdict and _strength(row) >= _MEASURED
    ]
    return replace(first, reason="; ".join([first.reason, *others])) if others else first


_MEASURED = 2


def _strength(row: ScoredClaim) -> int:
    if row.verdict in _DECIDED:
        return _MEASURED + 1
    if row.measured is None or row.verdict == "no_data":
        return int(row.run is not None)
    return _MEASURED
