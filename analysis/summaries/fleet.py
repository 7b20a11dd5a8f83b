"""A fleet run: its hosts, their figures side by side, and the facts in which they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.data.load import Run, Treatment, load_run
from analysis.stats.intervals import MedianSummary, median_of_hosts
from analysis.summaries.cells import included_values, treatments
from analysis.summaries.compared_runs import run_letter
from analysis.summaries.comparison import Comparison, comparison_row
from analysis.summaries.differences import facts_of, find_differences, find_incompatibilities
from pagecage.errors import UNREADABLE, PagecageError, why_unreadable
from pagecage.model.record import read_records
from pagecage.model.run_files import read_plan

DOCUMENT = "fleet.json"
FLEET_VERSION = 1
_FORMAT = "docs/FORMAT.md lists the keys"


@dataclass(frozen=True)
class FleetMember:
    """One host of a fleet run; `run` is None if nothing was recorded.

    `outcome` states how its last round ended (`done lost refused incomplete interrupted`), None
    before the first round. `reason` explains it.
    """

    host: str
    run: Run | None
    planned: int
    answered: int
    outcome: str | None
    reason: str

    @property
    def is_complete(self) -> bool:
        """True if every planned trial has an answer."""
        return self.answered == self.planned


@dataclass(frozen=True)
class Fleet:
    """A fleet run; `comparison` compares the hosts that have records, None while none has any."""

    path: Path
    document: Mapping[str, Any]
    members: tuple[FleetMember, ...]
    comparison: Comparison | None

    @property
    def is_spread(self) -> bool:
        """True if the blocks of one plan were distributed over the hosts."""
        return bool(self.document["mode"] == "spread")

    @property
    def members_with_records(self) -> tuple[tuple[str, FleetMember], ...]:
        """The hosts with records, each with its letter in tables and figures."""
        return tuple(
            (run_letter(index), member)
            for index, member in enumerate(member for member in self.members if member.run)
        )

    def all_hosts(self, treatment: Treatment, response: str) -> MedianSummary | None:
        """Return the median over all hosts of a treatment's medians.

        None without figures, and if every host ran the whole plan.
        """
        runs = [member.run for member in self.members if member.run]
        values = [found for run in runs if (found := included_values(run, treatment, response))]
        return median_of_hosts(values) if self.is_spread and values else None


@dataclass(frozen=True)
class HostFact:
    """A fact, with its value on each host that has records."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """True if the hosts differ in it."""
        return len(set(self.values)) > 1


def is_fleet(path: Path) -> bool:
    """Return whether a folder holds a fleet run."""
    return (path / DOCUMENT).exists()


def load_fleet(path: Path) -> Fleet:
    """Load a fleet run's folder.

    Raises PagecageError if it is not a fleet run, or if a host's records are invalid.
    """
    try:
        document = json.loads((path / DOCUMENT).read_bytes())
        hosts, version = list(document["hosts"]), int(document["fleet_version"])
        _ = (document["run_id"], document["experiment"], document["group"], document["mode"])
    except UNREADABLE as error:
        raise PagecageError(
            f"{path}/{DOCUMENT} cannot be read ({why_unreadable(error)})", _FORMAT
        ) from None
    if version > FLEET_VERSION:
        raise PagecageError(
            f"{path}/{DOCUMENT} has format version {version}", "use a newer pagecage to read it"
        )
    last_rounds = _last_rounds(path)
    members = tuple(_member(path, host, last_rounds.get(host, {})) for host in hosts)
    return Fleet(
        path, document, members, _comparison([member.run for member in members if member.run])
    )


def _last_rounds(path: Path) -> dict[str, Mapping[str, Any]]:
    """Return how the last round of each host ended.

    An incomplete line, left by a killed process, is skipped.
    """
    file, found = path / "rounds.jsonl", {}
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            last_round = json.loads(line)
            found[last_round["host"]] = last_round
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _member(path: Path, host: str, last_round: Mapping[str, Any]) -> FleetMember:
    folder = path / "hosts" / host
    has_records = any(True for _ in read_records(folder / "records.jsonl"))
    run = load_run(folder) if has_records else None
    planned = len(run.plan["trials"] if run else read_plan(folder)["trials"])
    answered = sum(trial.record.is_final for trial in run.trials) if run else 0
    return FleetMember(
        host,
        run,
        planned,
        answered,
        last_round.get("outcome"),
        str(last_round.get("because") or ""),
    )


def _comparison(runs: Sequence[Run]) -> Comparison | None:
    """Return the hosts' runs side by side, even if they are not comparable.

    A fleet run exists to compare different hosts.
    """
    if not runs:
        return None
    first = runs[0]
    rows = tuple(comparison_row(runs, treatment, first.response) for treatment in treatments(first))
    lacking: tuple[tuple[str, ...], ...] = tuple(() for _ in runs)
    return Comparison(
        tuple(runs),
        (first.response,),
        rows,
        {},
        tuple(find_differences(runs)),
        tuple(find_incompatibilities(runs)),
        lacking,
        (),
    )


def facts(fleet: Fleet) -> list[HostFact]:
    """Return the facts of all hosts, without those that differ between any two starts."""
    facts_by_host = [facts_of(member.run) for _, member in fleet.members_with_records if member.run]
    names = dict.fromkeys(name for one in facts_by_host for name in one)
    return [HostFact(name, tuple(one.get(name, "–") for one in facts_by_host)) for name in names]
