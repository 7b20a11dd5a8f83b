"""The results of a campaign by call, fault and outcome, and their section of docs/TRUST.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.report.model import markdown_table
from reliability.faults.found import FOUND
from reliability.faults.injection import (
    CLOCK_AHEAD,
    CLOCK_BACK,
    DISK_FULL,
    KILLED,
    NO_ANSWER,
    NUMBERS,
    TORN,
)
from reliability.faults.store import StoredCampaign, StoredFault, read_campaign
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
