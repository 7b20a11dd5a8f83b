"""Counts of a campaign by call, fault and outcome, and their section of docs/TRUST.md."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.report.export import markdown_table
from tests.trust.faults.found import FOUND
from tests.trust.faults.injection import (
    CLOCK_AHEAD,
    CLOCK_BACK,
    DISK_FULL,
    KILLED,
    NO_ANSWER,
    NUMBERS,
    TORN,
)
from tests.trust.faults.system_calls import (
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
from tests.trust.faults.trial import Judged, Unharmed

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
    """Return the row of a call."""
    return next(kind for kind, calls in KINDS.items() if call in calls)


def summarise(
    name: str, unharmed: Unharmed, found: Sequence[Judged], seconds: float
) -> dict[str, Any]:
    """Return the counts of one scenario."""
    points = Counter(kind_of(point.call) for point in dict.fromkeys(unharmed.trace))
    faults = Counter((kind_of(one.injection.point.call), one.injection.fault) for one in found)
    return {
        "command": name,
        "points": dict(points),
        "injections": len(found),
        "met": sum(one.was_met for one in found),
        "faults": [[*key, count] for key, count in sorted(faults.items())],
        "statuses": dict(Counter(str(one.status) for one in found)),
        "wrong": [f"{one.injection}: {'; '.join(one.wrong)}" for one in found if one.wrong],
        "seconds": seconds,
    }


def section(results: Path) -> Iterator[str]:
    """Yield the section about faults; nothing before the first campaign."""
    path = results / "faults.json"
    if not path.exists():
        return
    commands = json.loads(path.read_text())["commands"]
    yield "## Faults, enumerated\n"
    yield from _introduction(commands)
    yield _by_command(commands)
    yield "Injections by call and fault, all commands together:\n"
    yield _by_fault(commands)
    yield "Defects that the first campaigns showed, all fixed since:\n"
    yield "\n".join(f"- {sentence}" for sentence in FOUND) + "\n"
    for row in commands:
        for sentence in row["wrong"]:
            yield f"- **still wrong**, `{row['command']}`: {sentence}\n"
        for sentence in row.get("mended", ()):
            yield (
                f"- corrected since and repeated without a consequence, `{row['command']}`:"
                f" `{sentence}`"
            )
        if row.get("mended"):
            yield ""
    yield from _kills(results)


def _introduction(commands: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    points = sum(sum(row["points"].values()) for row in commands)
    injections = sum(row["injections"] for row in commands)
    met = sum(row["met"] for row in commands)
    planned = sum(row.get("planned", row["injections"]) for row in commands)
    wrong = sum(len(row["wrong"]) for row in commands)
    minutes = sum(row["seconds"] for row in commands) / 60
    yield (
        "The kernel stops every process of a command at each system call that writes, syncs,"
        " renames, removes, makes, forks, executes, mounts, locks or signals"
        " (seccomp_unotify(2)), whichever library makes the call. So the calls of an unharmed"
        " execution are a complete list of places for faults. Every fault that the kernel can"
        " answer there is injected at each of them, one per execution, on a simulated host. Where"
        " fewer were injected than there are, time ran out, and the seed chose which.\n"
    )
    yield (
        f"{points:,} calls and {planned:,} faults at them, of which {injections:,} were injected"
        f" and {met:,} met their call again."
        f" **{wrong} had a consequence that must not be.** The campaign took {minutes:.0f}"
        " minutes (`make trust-long`); `make check` repeats 100 of them, chosen by a seed.\n"
    )
    yield (
        "After each, the command must have ended with a documented exit status and without a"
        " traceback. The next start must succeed. No record may be lost, counted twice or differ"
        " from an unharmed execution's. No process, cgroup, setting, lock, temporary file or folder"
        " may be left. A bundle, a site, an image or a run folder is whole or absent. `disk full`"
        " means that every later write fails too; `no answer`, that the agent hangs and the user"
        " presses Ctrl-C.\n"
    )


def _by_command(commands: Sequence[Mapping[str, Any]]) -> str:
    head = ["command", "calls", "faults", "injected", "met", "exit status", "wrong"]
    return markdown_table(head, [_command_row(row) for row in commands])


def _command_row(row: Mapping[str, Any]) -> list[str]:
    statuses = sorted(row["statuses"].items(), key=lambda item: -item[1])
    told = ", ".join(f"{'killed' if word == '-9' else word}: {count}" for word, count in statuses)
    calls = str(sum(row["points"].values()))
    planned = row.get("planned", row["injections"])
    counts = (calls, str(planned), str(row["injections"]), str(row["met"]))
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


def _kills(results: Path) -> Iterator[str]:
    path = results / "guest-kills.json"
    if not path.exists():
        return
    sessions = json.loads(path.read_text())["sessions"]
    kills = Counter(kill["target"] for session in sessions for kill in session["kills"])
    wrong = [sentence for session in sessions for sentence in session["wrong"]]
    yield "## Kills on the real guest\n"
    yield (
        f"{kills.total()} SIGKILLs at random moments of {len(sessions)} runs in the emulated guest:"
        f" {', '.join(f'{count} of {name}' for name, count in kills.items())}. Each run was resumed"
        f" after each kill and left alone at last. {len(wrong)} consequences that must not be"
        " (`python -m tests.trust.guest_kills SEED`; the seeds are in the stored result).\n"
    )
    yield from (f"- {sentence}\n" for sentence in wrong)
