"""A run over a fleet: hosts beside each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.cells import included_values, treatments
from analysis.comparison import (
    Comparison,
    ComparisonRow,
    comparison_row,
    facts_of,
    find_differences,
    find_incompatibilities,
    run_letter,
    varying_label,
)
from analysis.data.load import Run, Treatment, load_run
from analysis.formatting import format_summary, response_title
from analysis.stats import MedianSummary, median_of_hosts
from analysis.views.comparison import change_cells, csv_summary, ratio_image
from pagecage.errors import UNREADABLE, PagecageError, why_unreadable
from pagecage.model.record import read_records
from pagecage.model.run_files import read_plan
from pagecage.report.model import (
    Block,
    Cell,
    Folded,
    Heading,
    Paragraph,
    Report,
    Table,
    csv_text,
    make_table,
)

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


_NO_RECORDS = "No host has a record yet."
_MODES = {
    "replicate": "the whole plan on every host",
    "spread": "its repeats distributed over the hosts",
}


def fleet_report(fleet: Fleet) -> Report:
    """Return the report: members, the table of figures, and the facts in which hosts differ."""
    blocks: list[Block] = [Paragraph(f"Mode: {_MODES[fleet.document['mode']]}.")]
    blocks += [
        Paragraph(
            member_sentence(member), tone="plain" if member.is_complete else "warning", marker="•"
        )
        for member in fleet.members
    ]
    left_out = (fleet.document.get("left_out") or {}).items()
    blocks += [
        Paragraph(f"{host}: left out: {reason}", tone="warning", marker="•")
        for host, reason in left_out
    ]
    if fleet.comparison is None:
        blocks.append(Paragraph(_NO_RECORDS))
    else:
        blocks[:0] = [Paragraph(fleet.comparison.runs[0].definition["question"], tone="strong")]
        blocks += [*_figures(fleet, fleet.comparison), *_facts(fleet)]
    return Report(f"{fleet.document['experiment']} on {fleet.document['group']}", tuple(blocks))


def member_sentence(member: FleetMember) -> str:
    """Return how many trials of a host have an answer and, if some are missing, the reason."""
    count = f"{member.host}: {member.answered} of {member.planned} trials have an answer"
    if member.is_complete:
        return count
    outcome = member.outcome or "not run yet"
    return f"{count}; {outcome}{f': {member.reason}' if member.reason else ''}"


def _figures(fleet: Fleet, comparison: Comparison) -> Iterator[Block]:
    for one in comparison.obstacles:
        yield Paragraph(f"Hosts differ in {one.what}: {one.reason}", tone="warning")
    yield Heading(response_title(comparison.responses[0]))
    yield ratio_image(comparison, comparison.rows)
    yield _response_table(fleet, comparison)
    yield Paragraph(_note(fleet), tone="soft")


def _hosts(fleet: Fleet) -> list[str]:
    """Return the letter and name of each host with records."""
    return [f"{letter} {member.host}" for letter, member in fleet.members_with_records]


def _response_table(fleet: Fleet, comparison: Comparison) -> Table:
    """Return a row per treatment: each host's median, and its ratio to the first host's."""
    first, *others = _hosts(fleet)
    ratio_columns = [column for host in others for column in (host, f"{host.split()[0]} / A")]
    together = ["all hosts"] if fleet.is_spread else []
    columns = [response_title(comparison.responses[0]), *together, first, *ratio_columns]
    return make_table(columns, [_row(fleet, comparison, row) for row in comparison.rows])


def _row(fleet: Fleet, comparison: Comparison, row: ComparisonRow) -> list[str | Cell]:
    summary = fleet.all_hosts(row.treatment, row.response)
    together = (
        [format_summary(row.response, summary, is_ratio=False) if summary else "–"]
        if fleet.is_spread
        else []
    )
    first, *others = [Cell(cell.text, cell.spread) for cell in row.cells]
    pairs = zip(others, map(change_cells, row.changes), strict=True)
    compared = [
        cell for other, (ratio, _, word) in pairs for cell in (other, _with_word(ratio, word))
    ]
    return [varying_label(comparison, row.treatment), *together, first, *compared]


def _with_word(ratio: Cell, word: Cell) -> Cell:
    return Cell(ratio.text, "\n".join(text for text in (ratio.detail, word.text) if text))


def _note(fleet: Fleet) -> str:
    note = "medians over included trials, with their spread below; ratios are by the first host"
    pooled = "all hosts: the median of their medians; below six hosts, with the range of these"
    return f"{note}; {pooled}" if fleet.is_spread else note


def _facts(fleet: Fleet) -> Iterator[Block]:
    found = facts(fleet)
    differing = [fact for fact in found if fact.differs]
    if differing:
        yield Heading("Facts in which the hosts differ")
        yield _fact_table(fleet, differing)
    yield Folded("all facts of the hosts", (_fact_table(fleet, found),))


def _fact_table(fleet: Fleet, found: list[HostFact]) -> Table:
    return make_table(["fact", *_hosts(fleet)], [[fact.name, *fact.values] for fact in found])


def write_report(fleet: Fleet) -> Path:
    """Write report.html into the fleet run's folder; return its path."""
    from analysis.views.html import to_html, write_page

    target = fleet.path / "report.html"
    write_page(
        to_html(
            fleet_report(fleet), f"{fleet.document['experiment']} · {fleet.document['run_id']}"
        ),
        target,
    )
    return target


def as_json(fleet: Fleet) -> dict[str, Any]:
    """Return the fleet run as JSON data; docs/FORMAT.md lists the keys."""
    return {
        "run_id": fleet.document["run_id"],
        "experiment": fleet.document["experiment"],
        "group": fleet.document["group"],
        "mode": fleet.document["mode"],
        "left_out": fleet.document.get("left_out") or {},
        "hosts": [_member_json(member) for member in fleet.members],
        "rows": [_row_json(fleet, row) for row in _rows(fleet)],
        "facts": [
            {"name": fact.name, "differs": fact.differs, "values": list(fact.values)}
            for fact in facts(fleet)
        ],
    }


def _member_json(member: FleetMember) -> dict[str, Any]:
    run_id = member.run.plan["run_id"] if member.run else None
    counts = {"planned": member.planned, "answered": member.answered}
    return {
        "host": member.host,
        "run_id": run_id,
        **counts,
        "outcome": member.outcome,
        "reason": member.reason,
    }


def _rows(fleet: Fleet) -> tuple[ComparisonRow, ...]:
    return fleet.comparison.rows if fleet.comparison else ()


def _row_json(fleet: Fleet, row: ComparisonRow) -> dict[str, Any]:
    names = [member.host for _, member in fleet.members_with_records]
    together = fleet.all_hosts(row.treatment, row.response)
    return {
        "treatment": dict(row.treatment),
        "response": row.response,
        "all_hosts": together and asdict(together),
        "hosts": {
            host: {
                "summary": cell.summary and asdict(cell.summary),
                "killed": cell.killed,
                "excluded": cell.excluded,
                "unanswered": cell.unanswered,
            }
            for host, cell in zip(names, row.cells, strict=True)
        },
        "ratios": {
            host: asdict(change) for host, change in zip(names[1:], row.changes, strict=True)
        },
    }


def as_csv(fleet: Fleet) -> str:
    """Return a line for each treatment and host."""
    rows = _rows(fleet)
    factors = list(rows[0].treatment) if rows else []
    names = [
        *factors,
        "response",
        "host",
        "median",
        "low",
        "high",
        "kind",
        "n",
        "excluded",
        "killed",
        "unanswered",
    ]
    return csv_text(names, _csv_rows(fleet))


def _csv_rows(fleet: Fleet) -> Iterator[list[Any]]:
    for row in _rows(fleet):
        for (_, member), cell in zip(fleet.members_with_records, row.cells, strict=True):
            counts = cell.excluded, cell.killed, cell.unanswered
            yield [
                *row.treatment.values(),
                row.response,
                member.host,
                *csv_summary(cell.summary),
                *counts,
            ]
