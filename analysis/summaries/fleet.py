"""One fleet run over all its hosts: treatments down, hosts across, what differs between them, and who was lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.data.load import Run, Treatment, load_run
from analysis.data.validate import read_plan
from analysis.stats.intervals import MedianSummary, pooled
from analysis.summaries.cells import figures, treatments
from analysis.summaries.comparison import Comparison, letter, make_row
from analysis.summaries.differences import differences, facts_of, obstacles
from pagecage.errors import UNREADABLE, PagecageError, why_unreadable
from pagecage.model.record import read_records

DOCUMENT = "fleet.json"
FLEET_VERSION = 1
_FORMAT = "docs/FORMAT.md lists the keys"


@dataclass(frozen=True)
class FleetMember:
    """One host: its run, None where nothing of it was recorded, and why answers are lacking.

    `outcome` is how its last round ended (`done lost refused incomplete interrupted`), None before the first one.
    """

    host: str
    run: Run | None
    planned: int
    answered: int
    outcome: str | None
    reason: str

    @property
    def is_whole(self) -> bool:
        """Whether every trial has its answer."""
        return self.answered == self.planned


@dataclass(frozen=True)
class Fleet:
    """A fleet run. `comparison` holds the hosts with records against the first of them; None while none has any."""

    path: Path
    document: Mapping[str, Any]
    parts: tuple[FleetMember, ...]
    comparison: Comparison | None

    @property
    def is_spread(self) -> bool:
        """Whether the blocks of one plan were dealt over the hosts, so that these are its blocks."""
        return bool(self.document["mode"] == "spread")

    @property
    def shown(self) -> tuple[tuple[str, FleetMember], ...]:
        """The hosts with records, each with its letter in tables and figures."""
        return tuple((letter(place), part) for place, part in enumerate(part for part in self.parts if part.run))

    def all_hosts(self, treatment: Treatment, response: str) -> MedianSummary | None:
        """All figures of a treatment together, hosts being blocks; None without any, and where each ran all."""
        runs = [part.run for part in self.parts if part.run]
        values = [found for run in runs if (found := figures(run, treatment, response))]
        return pooled(values) if self.is_spread and values else None


@dataclass(frozen=True)
class HostFact:
    """One fact of all hosts that have any, in their order."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the hosts do not have it in common."""
        return len(set(self.values)) > 1


def is_fleet(path: Path) -> bool:
    """Whether a folder is a fleet run's."""
    return (path / DOCUMENT).exists()


def load_fleet(path: Path) -> Fleet:
    """Read a fleet run's folder. Raises PagecageError when it is none, or a host's part cannot be judged."""
    try:
        document = json.loads((path / DOCUMENT).read_bytes())
        hosts, version = list(document["hosts"]), int(document["fleet_version"])
        _ = (document["run_id"], document["experiment"], document["group"], document["mode"])
    except UNREADABLE as error:
        raise PagecageError(f"{path}/{DOCUMENT} cannot be read ({why_unreadable(error)})", _FORMAT) from None
    if version > FLEET_VERSION:
        raise PagecageError(f"{path}/{DOCUMENT} has format version {version}", "use a newer pagecage to read it")
    ends = _ends(path)
    parts = tuple(_part(path, host, ends.get(host, {})) for host in hosts)
    return Fleet(path, document, parts, _comparison([part.run for part in parts if part.run]))


def _ends(path: Path) -> dict[str, Mapping[str, Any]]:
    """How the last round of each host ended; a line that a kill cut off is skipped."""
    file, found = path / "rounds.jsonl", {}
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            end = json.loads(line)
            found[end["host"]] = end
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _part(path: Path, host: str, end: Mapping[str, Any]) -> FleetMember:
    folder = path / "hosts" / host
    has_records = any(True for _ in read_records(folder / "records.jsonl"))
    run = load_run(folder) if has_records else None
    planned = len(run.plan["trials"] if run else read_plan(folder)["trials"])
    answered = sum(trial.record.is_final for trial in run.trials) if run else 0
    return FleetMember(host, run, planned, answered, end.get("outcome"), str(end.get("because") or ""))


def _comparison(runs: Sequence[Run]) -> Comparison | None:
    """The runs side by side, whatever stands against comparing them: that is what a fleet is run for."""
    if not runs:
        return None
    first = runs[0]
    rows = tuple(make_row(runs, treatment, first.response) for treatment in treatments(first))
    lacking: tuple[tuple[str, ...], ...] = tuple(() for _ in runs)
    told = differences(runs), obstacles(runs)
    return Comparison(tuple(runs), (first.response,), rows, {}, tuple(told[0]), tuple(told[1]), lacking, ())


def facts(fleet: Fleet) -> list[HostFact]:
    """What each host is, side by side; what differs between any two starts of a machine is left out."""
    told = [facts_of(part.run) for _, part in fleet.shown if part.run]
    names = dict.fromkeys(name for one in told for name in one)
    return [HostFact(name, tuple(one.get(name, "–") for one in told)) for name in names]
