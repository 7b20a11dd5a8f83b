"""A run over a fleet: hosts next to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from analysis.cells import footnotes, included_values, treatments, varying_label
from analysis.comparison import (
    Comparison,
    comparison_row,
    facts_of,
    find_differences,
    find_incompatibilities,
    run_letter,
)
from analysis.data.load import Run, Treatment, load_run
from analysis.formatting import format_summary, response_title
from analysis.stats import MedianSummary, median_of_hosts
from analysis.views.comparison import (
    SUMMARY_COLUMNS,
    cell_json,
    change_cells,
    csv_summary,
    ratio_image,
)
from pagecage.errors import UNREADABLE, PagecageError, why_unreadable
from pagecage.model.json_codec import (
    EXPERIMENT,
    HOST,
    RUN_ID,
    TEXT,
    WORD,
    from_line,
    from_lines,
    is_identifier,
    lines_of,
    require_identifiers,
)
from pagecage.model.record import read_records
from pagecage.model.run_files import read_plan
from pagecage.report.model import (
    Block,
    Cell,
    Folded,
    Heading,
    Paragraph,
    Report,
    Tone,
    csv_text,
    make_table,
)

DOCUMENT = "fleet.json"
FLEET_VERSION = 1
_FORMAT = "docs/FORMAT.md lists the keys"
_IDENTIFIERS = {"run_id": RUN_ID, "experiment": EXPERIMENT, "group": TEXT, "mode": WORD}


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
        return bool(self.document["mode"] == "spread")

    @property
    def members_with_records(self) -> tuple[tuple[str, FleetMember], ...]:
        """The hosts with records, each with its letter in tables and figures."""
        having = (member for member in self.members if member.run)
        return tuple((run_letter(index), member) for index, member in enumerate(having))

    def all_hosts(self, treatment: Treatment, response: str) -> MedianSummary | None:
        """Return the median of a treatment's medians on all hosts; None unless it is spread."""
        runs = [member.run for member in self.members if member.run]
        values = [found for run in runs if (found := included_values(run, treatment, response))]
        return median_of_hosts(values) if self.is_spread and values else None


def is_fleet(path: Path) -> bool:
    return (path / DOCUMENT).exists()


def load_fleet(path: Path) -> Fleet:
    """Load a fleet run's folder.

    Raises PagecageError if it is not a fleet run, or if a host's records are invalid.
    """
    where = f"{path}/{DOCUMENT}"
    try:
        document = from_line((path / DOCUMENT).read_bytes())
        hosts, version = list(document["hosts"]), int(document["fleet_version"])
        _ = (document["run_id"], document["experiment"], document["group"], document["mode"])
        require_identifiers(document, _IDENTIFIERS, where)
        for host in hosts:
            require_identifiers({"hosts": host}, {"hosts": HOST}, where)
    except UNREADABLE as error:
        raise PagecageError(f"{where} cannot be read ({why_unreadable(error)})", _FORMAT) from None
    if version > FLEET_VERSION:
        raise PagecageError(
            f"{where} has format version {version}", "use a newer pagecage to read it"
        )
    last_rounds = {one["host"]: one for one in _rounds(path / "rounds.jsonl")}
    members = []
    for host in hosts:
        folder, last_round = path / "hosts" / host, last_rounds.get(host, {})
        has_records = any(True for _ in read_records(folder / "records.jsonl"))
        run = load_run(folder) if has_records else None
        planned = len(run.plan["trials"] if run else read_plan(folder)["trials"])
        answered = sum(trial.record.is_final for trial in run.trials) if run else 0
        reason = str(last_round.get("because") or "")
        members.append(FleetMember(host, run, planned, answered, last_round.get("outcome"), reason))
    compared = _comparison([member.run for member in members if member.run])
    return Fleet(path, document, tuple(members), compared)


def _rounds(file: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the results of rounds. Raises PagecageError with the number of a damaged line."""
    if not file.exists():
        return
    with file.open("rb") as lines:
        where = f"{file.parent.name}/{file.name}"
        for place, data in from_lines(lines_of(lines), where, str(file)):
            if not isinstance(data, dict) or not is_identifier(data.get("host"), HOST):
                raise PagecageError(f"{place} is not the result of a round", _FORMAT)
            yield data


def _comparison(runs: Sequence[Run]) -> Comparison | None:
    """Return the hosts' runs side by side, even if they are not comparable."""
    if not runs:
        return None
    response = runs[0].response
    return Comparison(
        tuple(runs),
        (response,),
        tuple(comparison_row(runs, treatment, response) for treatment in treatments(runs[0])),
        overall={},
        differences=tuple(find_differences(runs)),
        obstacles=tuple(find_incompatibilities(runs)),
        lacking=((),) * len(runs),
        gate_results=(),
    )


def facts(fleet: Fleet) -> dict[str, tuple[str, ...]]:
    """Return each fact with its value on each host with records, without transient ones."""
    runs = fleet.comparison.runs if fleet.comparison else ()
    facts_by_host = [facts_of(run) for run in runs]
    names = dict.fromkeys(name for one in facts_by_host for name in one)
    return {name: tuple(one.get(name, "–") for one in facts_by_host) for name in names}


_MODES = {
    "replicate": "the whole plan on every host",
    "spread": "its repeats distributed over the hosts",
}


def fleet_report(fleet: Fleet) -> Report:
    rest: list[Block] = []
    blocks: list[Block] = [Paragraph(f"Mode: {_MODES[fleet.document['mode']]}.")]
    for member in fleet.members:
        tone: Tone = "plain" if member.is_complete else "warning"
        blocks.append(Paragraph(member_sentence(member), tone=tone, marker="•"))
    for host, reason in (fleet.document.get("left_out") or {}).items():
        blocks.append(Paragraph(f"{host}: left out: {reason}", tone="warning", marker="•"))
    if fleet.comparison is None:
        blocks.append(Paragraph("No host has a record yet."))
    else:
        blocks[:0] = [Paragraph(fleet.comparison.runs[0].definition["question"], tone="strong")]
        hosts = [f"{letter} {member.host}" for letter, member in fleet.members_with_records]
        blocks += _figures(fleet, fleet.comparison, hosts)
        rows = [[name, *values] for name, values in facts(fleet).items()]
        if differing := [[name, *values] for name, *values in rows if len(set(values)) > 1]:
            rest.append(Heading("Facts in which the hosts differ"))
            rest.append(make_table(["fact", *hosts], differing))
        rest.append(Folded("all facts of the hosts", (make_table(["fact", *hosts], rows),)))
    title = f"{fleet.document['experiment']} on {fleet.document['group']}"
    return Report(title, tuple(blocks), tuple(rest))


def member_sentence(member: FleetMember) -> str:
    count = f"{member.host}: {member.answered} of {member.planned} trials have an answer"
    if member.is_complete:
        return count
    outcome = member.outcome or "not run yet"
    return f"{count}; {outcome}{f': {member.reason}' if member.reason else ''}"


def _figures(fleet: Fleet, comparison: Comparison, hosts: Sequence[str]) -> Iterator[Block]:
    for one in comparison.obstacles:
        yield Paragraph(f"Hosts differ in {one.what}: {one.reason}", tone="warning")
    title = response_title(comparison.responses[0])
    yield Heading(title)
    yield ratio_image(comparison, comparison.rows)
    columns = [title, *(["all hosts"] if fleet.is_spread else []), hosts[0]]
    for host in hosts[1:]:
        columns += [host, f"{host.split()[0]} / A"]
    rows, below = list[list[str | Cell]](), footnotes(*comparison.runs)
    for row in comparison.rows:
        line: list[str | Cell] = [varying_label(comparison.runs[0], row.treatment)]
        if fleet.is_spread:
            pooled = fleet.all_hosts(row.treatment, row.response)
            line.append(format_summary(row.response, pooled, is_ratio=False) if pooled else "–")
        first, *others = (
            Cell(below.marked(one.text, row.treatment, run), one.note(None, has_footnote=True))
            for run, one in enumerate(row.cells)
        )
        line.append(first)
        for other, change in zip(others, row.changes, strict=True):
            ratio, _, word = change_cells(change)
            detail = "\n".join(filter(None, (ratio.detail, word.text)))
            line += [other, Cell(ratio.text, detail)]
        rows.append(line)
    yield replace(make_table(columns, rows), footnotes=below.notes)
    note = "medians over included trials, with their spread below; ratios are by the first host"
    if fleet.is_spread:
        note += "; all hosts: the median of their medians; below six hosts, with the range of these"
    yield Paragraph(note, tone="soft")


def write_report(fleet: Fleet) -> Path:
    from analysis.views.html import write_page

    target = fleet.path / "report.html"
    title = f"{fleet.document['experiment']} · {fleet.document['run_id']}"
    write_page(fleet_report(fleet), title, target)
    return target


def as_json(fleet: Fleet) -> dict[str, Any]:
    hosts, rows = [], []
    for member in fleet.members:
        run_id = member.run.run_id if member.run else None
        rest = {key: value for key, value in vars(member).items() if key not in ("host", "run")}
        hosts.append({"host": member.host, "run_id": run_id, **rest})
    names = [member.host for _, member in fleet.members_with_records]
    for row in fleet.comparison.rows if fleet.comparison else ():
        together = fleet.all_hosts(row.treatment, row.response)
        changes = zip(names[1:], map(asdict, row.changes), strict=True)
        line = {
            "treatment": dict(row.treatment),
            "response": row.response,
            "all_hosts": together and asdict(together),
            "hosts": dict(zip(names, map(cell_json, row.cells), strict=True)),
            "ratios": dict(changes),
        }
        rows.append(line)
    return {
        **{key: fleet.document[key] for key in ("run_id", "experiment", "group", "mode")},
        "left_out": fleet.document.get("left_out") or {},
        "hosts": hosts,
        "rows": rows,
        "facts": [
            {"name": name, "differs": len(set(values)) > 1, "values": list(values)}
            for name, values in facts(fleet).items()
        ],
    }


def as_csv(fleet: Fleet) -> str:
    rows = fleet.comparison.rows if fleet.comparison else ()
    factors = list(rows[0].treatment) if rows else []
    counts = ("excluded", "killed", "unanswered")
    lines = []
    for row in rows:
        about = [*row.treatment.values(), row.response]
        for (_, member), cell in zip(fleet.members_with_records, row.cells, strict=True):
            figures = [*csv_summary(cell.summary), *(getattr(cell, name) for name in counts)]
            lines.append([*about, member.host, *figures])
    return csv_text([*factors, "response", "host", *SUMMARY_COLUMNS, *counts], lines)
