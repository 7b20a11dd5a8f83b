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
from reliability.faults.campaign import Judged
from reliability.faults.injection import (
    CLOCK_AHEAD,
    CLOCK_BACK,
    DISK_FULL,
    KILLED,
    NO_ANSWER,
    NUMBERS,
    TORN,
    Injection,
    Point,
)
from reliability.faults.system_calls import (
    CHANGES,
    COPIES,
    EXECS,
    FOLDERS,
    FORKS,
    LOCKS,
    MOUNTS,
    OPENS,
    REMOVALS,
    RENAMES,
    SIGNALS,
    SOCKETS,
    SYNCS,
    WRITES,
)
from reliability.guest_kills.section import kills_section

FOUND = (
    "`run` left half a run folder after 17 of 401 faults: a plan that was cut off, or no plan. A"
    " run folder is now made under another name, and renamed.",
    "108 of 401 faults ended `run` as an internal error: a full disk, a disk error, a refused"
    " process. Now it is one sentence with a fix, and exit status 3.",
    "23 faults ended Python with status 120, because a message could not be printed.",
    "Ctrl-C did not end a run whose agent hung. Now a silence of a minute does.",
    "Temporary files of killed commands stayed for ever (`agent.PID`, `.latest-PID`,"
    " `.pagecage-bundle-PID`, `.pagecage-render-*`, `.pagecage-site-*`). The next start removes"
    " them.",
    "An agent that was killed while it noted a second setting of a disk forgot the first. The"
    " journal is now replaced as a whole.",
    "A setting that could not be put back, because the disk was full, was forgotten. The next"
    " start now tries again.",
    "A collector ran on for ever if its agent was killed before it had noted it. It now carries a"
    " mark by which the next start finds it.",
    "A `systemctl stop` that failed was taken for a success. It is repeated, then an error.",
    "A line of a fleet's `rounds.jsonl` that was cut off made every later `--resume` fail.",
    "A fleet's folder without `fleet.json` stayed when its maker was killed.",
    "An analysis that was ended by a signal became exit status 247.",
    "Ctrl-C did not end a fleet's run while its ansible-playbook hung. Now it is given up after"
    " five minutes, and the next run fetches what the hosts have.",
    "Ctrl-C at the end of a fleet's round left a directory on each host that had ended. Only those"
    " that still work are stopped now.",
    "After a rename only the file was synced, not its folder: a power failure could undo it.",
)


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
    head = {"seed": campaign.seed, "states": campaign.states}
    write_whole(results / "faults.json", json.dumps(head, indent=1) + "\n")
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


KINDS: Mapping[str, Sequence[str]] = {
    "write": (*WRITES, *COPIES, *CHANGES),
    "fsync": SYNCS,
    "rename": RENAMES,
    "unlink": REMOVALS,
    "mkdir, link": FOLDERS,
    "open to write": OPENS,
    "fork": FORKS,
    "exec": EXECS,
    "mount": MOUNTS,
    "lock, socket, signal": (*LOCKS, *SOCKETS, *SIGNALS),
}
FAULTS = (
    *(KILLED, TORN, "EIO", "ENOSPC", DISK_FULL, "EACCES", "EINTR", "EAGAIN", "EPIPE"),
    *("ECONNREFUSED", CLOCK_BACK, CLOCK_AHEAD, NO_ANSWER),
)
assert set(NUMBERS) <= set(FAULTS)


def kind_of(call: str) -> str:
    return next(kind for kind, calls in KINDS.items() if call in calls)


def summarise(faults: Sequence[StoredFault]) -> dict[str, Any]:
    """Return the counts of one command's faults, with and without a result."""
    done = [one for one in faults if one.state is not None]
    by_kind = Counter((kind_of(one.injection.point.call), one.injection.fault) for one in done)
    return {
        "command": faults[0].command,
        "calls": len({one.injection.point for one in faults}),
        "planned": len(faults),
        "injections": len(done),
        "met": sum(one.was_met for one in done),
        "faults": [[*key, count] for key, count in sorted(by_kind.items())],
        "statuses": dict(Counter(one.status for one in done).most_common()),
        "wrong": [f"{one.injection}: {one.wrong}" for one in done if one.wrong],
        "mended": [str(one.injection) for one in done if one.wrong_before and not one.wrong],
        "seconds": sum(one.seconds for one in done),
    }


def section(results: Path) -> Iterator[str]:
    campaign = read_campaign(results, 0)
    if not campaign.faults:
        return
    by_command: dict[str, list[StoredFault]] = defaultdict(list)
    for one in campaign.faults:
        by_command[one.command].append(one)
    rows = [summarise(faults) for faults in by_command.values()]
    yield "## Faults, enumerated\n"
    yield from _introduction(rows)
    yield markdown_table(_HEAD, [_command_row(row) for row in rows])
    yield from _states(campaign)
    yield "Injections by call and fault, all commands together:\n"
    yield _by_fault(rows)
    yield "Defects that the campaigns showed, all fixed since:\n"
    yield "\n".join(f"- {sentence}" for sentence in FOUND) + "\n"
    yield from _consequences(rows)
    yield from kills_section(results)


def _consequences(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield from (f"- **still wrong**, `{row['command']}`: {one}\n" for one in row["wrong"])
    if mended := sum(len(row["mended"]) for row in rows):
        yield (
            "Faults that had a consequence with an earlier state of the code, and none when they"
            f" were repeated: {mended} (column `wrong_before` of"
            " [trust/faults.csv](trust/faults.csv)).\n"
        )


def _introduction(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    calls, planned, injections, met = (
        sum(row[key] for row in rows) for key in ("calls", "planned", "injections", "met")
    )
    wrong = sum(len(row["wrong"]) for row in rows)
    yield _METHOD
    yield (
        f"{calls:,} calls and {planned:,} faults at them, of which {injections:,} were injected"
        f" and {met:,} met their call again."
        f" **{wrong} had a consequence that must not be.** One after another they take"
        f" {sum(row['seconds'] for row in rows) / 60:.0f} minutes (`make trust-long`);"
        " `make test-slow` repeats 100 of them, chosen by a seed.\n"
    )
    yield _CONSEQUENCES


_METHOD = """The kernel stops every process of a command at each system call that writes, syncs, \
renames, removes, makes, forks, executes, mounts, locks or signals (seccomp_unotify(2)), whichever \
library makes the call. So the calls of an unharmed execution are a complete list of places for \
faults. Every fault that the kernel can answer there is injected at each of them, one per \
execution, on a simulated host. [trust/faults.csv](trust/faults.csv) lists each fault with its \
result.
"""
_CONSEQUENCES = """After each, the command must have ended with a documented exit status and \
without a traceback. The next start must succeed. No record may be lost, counted twice or differ \
from an unharmed execution's. No process, cgroup, setting, lock, temporary file or folder may be \
left. A bundle, a site, an image or a run folder is whole or absent. `disk full` means that every \
later write fails too; `no answer`, that the agent hangs and the user presses Ctrl-C.
"""


def _states(campaign: StoredCampaign) -> Iterator[str]:
    missing = Counter(one.command for one in campaign.faults if one.state is None)
    if missing:
        yield f"Not injected yet: {_listed(missing)}.\n"
    counts = Counter(one.state for one in campaign.faults if one.state is not None)
    newest = max(counts)
    earlier = Counter(one.command for one in campaign.faults if (one.state or newest) < newest)
    code = f"the state `{campaign.states[newest - 1]}` of the code"
    if not earlier:
        yield f"All were injected with {code}.\n"
        return
    yield (
        f"{counts[newest]:,} were injected with {code}, the newest that the campaign met,"
        f" {earlier.total():,} with earlier ones and not repeated since: {_listed(earlier)}.\n"
    )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} of `{name}`" for name, count in counts.items())


_HEAD = ["command", "calls", "faults", "injected", "met", "exit status", "wrong"]


def _command_row(row: Mapping[str, Any]) -> list[str]:
    names = {"-9": "killed", "": "did not end"}
    told = ", ".join(f"{names.get(key, key)}: {count}" for key, count in row["statuses"].items())
    counts = (str(row[key]) for key in ("calls", "planned", "injections", "met"))
    return [row["command"], *counts, told, str(len(row["wrong"]))]


def _by_fault(commands: Sequence[Mapping[str, Any]]) -> str:
    counts: Counter[tuple[str, str]] = Counter()
    for row in commands:
        for kind, fault, count in row["faults"]:
            counts[kind, fault] += count
    used = [fault for fault in FAULTS if any(fault == one for _, one in counts)]
    rows = [
        [kind, *(str(counts[kind, fault] or "") for fault in used)]
        for kind in KINDS
        if any(kind == one for one, _ in counts)
    ]
    return markdown_table(["call", *used], rows)
