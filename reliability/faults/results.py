"""The results of fault campaigns: docs/trust/faults.csv, and their section of docs/TRUST.md.

A campaign that is continued injects what has no result with the present code.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagecage.report.model import markdown_table
from pagecage.whole_files import write_whole
from reliability.campaign import measured_with, read_results
from reliability.faults.campaign import Judged
from reliability.faults.injection import Injection, Point

_COLUMNS = (
    *("command", "fault", "role", "call", "target", "occurrence", "state", "met", "status"),
    *("next_status", "seconds", "wrong", "wrong_before"),
)


@dataclass(frozen=True)
class StoredFault:
    """A fault of a plan and its result.

    `state` is the number of the code's state with which it was injected, from 1; None if it has
    not been injected. An empty `status` means that the command did not end. `wrong_before` is what
    was wrong with an earlier state.
    """

    command: str
    injection: Injection
    state: int | None = None
    was_met: bool = False
    status: str = ""
    next_status: str = ""
    seconds: float = 0.0
    wrong: str = ""
    wrong_before: str = ""


@dataclass(frozen=True)
class StoredCampaign:
    """All faults with their results. `states` are hashes of the code, the newest last."""

    seed: int
    states: tuple[str, ...] = ()
    faults: tuple[StoredFault, ...] = field(default=(), repr=False)

    def at(self, code: str) -> StoredCampaign:
        """Return the campaign with this state of the code as its newest one."""
        if self.states[-1:] == (code,):
            return self
        return replace(self, states=(*self.states, code))

    def pending(self, command: str, plan: Sequence[Injection]) -> list[Injection]:
        """Return what has no result with the newest state.

        First come injections without any result, then those that were wrong, then the others.
        """
        known = {one.injection: one for one in self.faults if one.command == command}
        now = len(self.states)
        ranked = [(_rank(known.get(one), now), one) for one in plan]
        return [one for rank, one in sorted(ranked, key=lambda pair: pair[0]) if rank < _DONE]

    def with_results(
        self, command: str, plan: Sequence[Injection], found: Sequence[StoredFault]
    ) -> StoredCampaign:
        """Return the campaign with new results of a command and its present plan.

        An earlier result whose call no longer occurs is dropped, unless the code is the same.
        """
        rows = {one: StoredFault(command, one) for one in plan}
        for old in (one for one in self.faults if one.command == command):
            if old.state and (old.injection in rows or old.state == len(self.states)):
                rows[old.injection] = old
        for new in found:
            before = rows.get(new.injection, new)
            rows[new.injection] = replace(new, wrong_before=before.wrong or before.wrong_before)
        others = (one for one in self.faults if one.command != command)
        return replace(self, faults=(*others, *rows.values()))


_DONE = 3


def _rank(known: StoredFault | None, newest: int) -> int:
    if known is None or known.state is None:
        return 0
    if known.state == newest:
        return _DONE
    return 1 if known.wrong else 2


def result_of(judged: Judged, state: int) -> StoredFault:
    return StoredFault(
        judged.scenario,
        judged.injection,
        state,
        judged.was_met,
        _status_word(judged.status),
        _status_word(judged.next_status),
        round(judged.seconds, 1),
        "; ".join(judged.wrong),
    )


def _status_word(status: int | None) -> str:
    return "" if status is None else str(status)


def read_campaign(results: Path, seed: int) -> StoredCampaign:
    """Return the stored campaign; one without results before the first."""
    if not (results / "faults.csv").exists():
        return StoredCampaign(seed)
    head = json.loads((results / "faults.json").read_text())
    with (results / "faults.csv").open(newline="") as file:
        faults = tuple(_from_row(row) for row in csv.DictReader(file))
    return StoredCampaign(head["seed"], tuple(head["states"]), faults)


def write_campaign(results: Path, campaign: StoredCampaign, order: Sequence[str]) -> None:
    path = results / "faults.json"
    used = {campaign.states[one.state - 1] for one in campaign.faults if one.state}
    states = measured_with(path.name, read_results(path, {}).get("measured", []), used)
    head = {"seed": campaign.seed, "states": campaign.states, "measured": states}
    write_whole(path, json.dumps(head, indent=1) + "\n")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(_to_row(one) for one in sorted(campaign.faults, key=_by_command(order)))
    write_whole(results / "faults.csv", text.getvalue())


def _by_command(order: Sequence[str]) -> Callable[[StoredFault], int]:
    return lambda one: order.index(one.command)


def _to_row(one: StoredFault) -> Sequence[object]:
    point = one.injection.point
    place = (one.command, one.injection.fault, point.role, point.call, point.target)
    if one.state is None:
        return (*place, point.occurrence, *("" for _ in _COLUMNS[6:]))
    ends = (one.state, "yes" if one.was_met else "no", one.status, one.next_status)
    return (*place, point.occurrence, *ends, one.seconds, one.wrong, one.wrong_before)


def _from_row(row: Mapping[str, str]) -> StoredFault:
    point = Point(row["role"], row["call"], row["target"], int(row["occurrence"]))
    found = StoredFault(row["command"], Injection(point, row["fault"]))
    if not row["state"]:
        return found
    return replace(
        found,
        state=int(row["state"]),
        was_met=row["met"] == "yes",
        status=row["status"],
        next_status=row["next_status"],
        seconds=float(row["seconds"]),
        wrong=row["wrong"],
        wrong_before=row["wrong_before"],
    )


def summarise(faults: Sequence[StoredFault]) -> dict[str, Any]:
    """Return the counts of one command's faults, with and without a result."""
    done = [one for one in faults if one.state is not None]
    return {
        "command": faults[0].command,
        "calls": len({one.injection.point for one in faults}),
        "planned": len(faults),
        "injections": len(done),
        "met": sum(one.was_met for one in done),
        "wrong": [f"{one.injection}: {one.wrong}" for one in done if one.wrong],
        "mended": [str(one.injection) for one in done if one.wrong_before and not one.wrong],
        "seconds": sum(one.seconds for one in done),
    }


def injected(results: Path) -> tuple[int, int]:
    """Return how many faults were injected, and how many had a consequence that must not be."""
    done = [one for one in read_campaign(results, 0).faults if one.state is not None]
    return len(done), sum(bool(one.wrong) for one in done)


def faults_section(results: Path) -> Iterator[str]:
    campaign = read_campaign(results, 0)
    if not campaign.faults:
        return
    by_command: dict[str, list[StoredFault]] = defaultdict(list)
    for one in campaign.faults:
        by_command[one.command].append(one)
    rows = [summarise(faults) for faults in by_command.values()]
    yield "## Faults, enumerated\n"
    yield _METHOD
    calls, planned, injections, met, mended = (
        sum(row[key] if isinstance(row[key], int) else len(row[key]) for row in rows)
        for key in ("calls", "planned", "injections", "met", "mended")
    )
    wrong = sum(len(row["wrong"]) for row in rows)
    yield (
        f"{calls:,} calls have {planned:,} faults. {injections:,} were injected, and {met:,}"
        f" reached their call again. **{wrong} had a forbidden consequence**, and {mended} had"
        " a forbidden consequence with an earlier state of the code. In sequence, they take"
        f" {sum(row['seconds'] for row in rows) / 60:.0f} minutes.\n"
    )
    yield markdown_table(_HEAD, [_command_row(row) for row in rows])
    missing = Counter(one.command for one in campaign.faults if one.state is None)
    if missing:
        yield f"Not injected yet: {_listed(missing)}.\n"
    counts = Counter(one.state for one in campaign.faults if one.state is not None)
    newest = max(counts)
    earlier = Counter(one.command for one in campaign.faults if (one.state or newest) < newest)
    if earlier:
        yield (
            f"{counts[newest]:,} were injected with the newest code that the campaign met,"
            f" {earlier.total():,} with earlier code and not repeated since: {_listed(earlier)}.\n"
        )
    for row in rows:
        yield from (f"- **still wrong**, `{row['command']}`: {one}\n" for one in row["wrong"])


_METHOD = """The campaign stops every process of a command at each system call that writes, syncs,
renames, removes, makes, forks, executes, mounts, locks or signals (seccomp_unotify(2)). The calls
of an execution without faults are therefore a complete list of injection points. At each point,
every fault that the kernel can return there is injected, one per execution, on a simulated host.
The faults include SIGKILL, a torn write, each errno, a full disk, a clock that jumps, and an agent
that hangs.

The command must exit with a documented status and without a traceback. The next start must succeed.
No record may be lost, counted twice or changed. No process, cgroup, setting, lock or file may be
left. A bundle, a site, an image or a run folder must be complete or absent.
"""


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} of `{name}`" for name, count in counts.items())


_HEAD = ["command", "calls", "faults", "injected", "met", "wrong"]


def _command_row(row: Mapping[str, Any]) -> list[str]:
    counts = (str(row[key]) for key in ("calls", "planned", "injections", "met"))
    return [row["command"], *counts, str(len(row["wrong"]))]
