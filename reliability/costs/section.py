"""The section of docs/TRUST.md about what the harness itself costs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pagecage.report.model import markdown_table
from reliability.bench.bed import (
    LEAST_SPEED,
    MOST_GROWTH,
    MOST_TIMES_PEER,
    median_with_interval,
    ratio_of_pairs,
)

_NOT_YET = "Not measured yet.\n"
Row = Mapping[str, Any]
_HEAD = """## What the harness costs

A harness that is slow is used less, and one that disturbs what it measures is wrong. Each table
names its command. The guest's CPU is emulated, ten to twenty times slower than this machine's, so
what costs CPU time weighs more there than on any real host. A figure above its goal is in bold.
"""
_NOTHING = f"""### A trial of nothing

A trial starts `true` without limits, data or collectors. Its time is that from one trial to the
next, with its proofs, its counters and its record, which is synced to the disk. The peers start
`true` once, in turns with the trials. `systemd-run --scope` limits nothing and measures nothing;
hyperfine measures time alone; runexec of BenchExec limits and measures; docker starts a container
of one static program. What systemd and dockerd do for a peer is in its seconds, not in its CPU
time and memory. Goals: at most {MOST_TIMES_PEER["systemd-run"]:g} times `systemd-run`, and less
than runexec.

On this machine, systemd is process 1 of new namespaces. Its cgroups have no controllers, which
cgroup v1 has. So runexec limits no memory there, and the agent's check for controllers is bypassed:
a trial of nothing needs none.

`make bench ONLY=peers HOST=vm`
"""
_BEFORE = """Until this section was measured, a trial started four clients of systemd: `systemctl
set-property`, `systemctl start`, `systemd-run` and `systemctl stop`. They took most of its time.
The agent now makes the same method calls itself, byte for byte. The drop-ins, the slice and the
scope are the same, and every limit is still read back from the kernel
([decision 28](decisions/0028-systemd-is-asked-without-its-clients.md)).
"""
_GROWTH = f"""### Long plans

The controller's own cost, with a simulated host whose agent answers at once with the frames of a
trial of nothing. In blocks, the host is restored after every 20 trials. Goal: a trial in a plan of
10,000 costs at most {MOST_GROWTH:g} times what it costs in one of 100.

`make bench ONLY=growth`
"""
_GROWTH_FOUND = """The first measurement found that a campaign read all records of its run several
times after each machine state. That was 70 ms of CPU time per trial in a plan of 1,000 trials in
blocks, and grew with the square. Each record is now read once.
"""
_FLEETS = f"""### Fleets

Each host runs a plan of 20 trials. The hosts are folders, and a small program stands for
ansible-playbook, whose own cost is not in these figures. Goal: a trial on 100 hosts costs at most
{MOST_GROWTH:g} times what it costs on 10.

`make bench ONLY=fleets`
"""
_REPORTS = f"""### Reports

The whole process `pagecage` starts for a report, with 100 sampler rows per trial. Goal: a further
trial costs at most {MOST_GROWTH:g} times as much between 1,000 and 10,000 trials as before.

`make bench ONLY=reports`
"""
_REPORTS_FOUND = """Before three changes, a report of 10,000 trials took 105 s and 2,224 MB:

- each line of a panel was an artist of its own;
- the notebook stored each figure a second time, as text;
- each point of a line was a line of text.
"""
_OBSERVERS = """### What collectors do to a reader

Two readers take random blocks of 4 KiB, without limits. One reads a cold file through a mapping.
This is the worst case for tracers, since every block is a page fault. The other reads a resident
file by pread(2), so that no disk adds its noise. Trials with a set of collectors and without it
take turns on the same state of the machine. Goal: at most 1 %, or off by default. Only
the sampler is on by default; the others record if a definition or `--collectors` names them. A
ratio has the interval that contains the median in 95 of 100 cases, or the range of fewer than six
pairs. One that includes 0 shows no effect, and one that is wider than 1 % does not show that the
goal is met.
"""


def costs_section(results: Path) -> Iterator[str]:
    yield _HEAD
    found: dict[str, Any] = json.loads((results / "costs.json").read_text())
    yield from _nothing(found)
    yield _OBSERVERS
    places = {
        "guest": ("In the guest, on an emulated CPU", "make bench ONLY=observers HOST=vm"),
        "natively": ("On this machine, without cgroups", "make bench ONLY=observers HOST=local"),
    }
    for place, (where, command) in places.items():
        if trials := found.get("observers", {}).get(place):
            yield f"**{where}** (`{command}`)\n"
            yield markdown_table(_COLUMNS, list(_observer_rows(trials)))
            yield _gaps(trials)
        else:
            yield f"**{where}**: not measured yet (`{command}`).\n"
    rows = found.get("sampler", [])
    for row in rows:
        pairs = [one["with"] / one["without"] for one in row["rows"]]
        middle, low, high = median_with_interval(pairs)
        words = _marked(_words((middle, low, high)), middle >= LEAST_SPEED)
        yield (
            f"The sampler alone, {row['where']}: {words} of the speed, in {len(pairs)} pairs"
            f" (`{row['command']}`).\n"
        )
    yield from _growth(found)
    yield from _fleets(found)
    yield from _reports(found)


def _nothing(found: Row) -> Iterator[str]:
    yield _NOTHING
    for machine in found.get("peers", []):
        name = machine["machine"]
        yield f"**{name[0].upper()}{name[1:]}**\n"
        trial = machine["trial"]
        rows = [("a trial of nothing", trial, ""), *_peers(machine)]
        head = ["", "seconds", "CPU seconds", "memory", "trial / peer", "goal"]
        yield markdown_table(head, [_peer_cells(*row, trial) for row in rows])
        slowest = sorted(machine["phases"].items(), key=lambda item: -item[1])[:4]
        shares = ", ".join(f"`{name}` {1000 * seconds:.0f} ms" for name, seconds in slowest)
        yield f"The phases of the trial that take longest: {shares}.\n"
    yield _BEFORE
    if before := found.get("before"):
        yield before["sentence"] + "\n"


def _peers(machine: Row) -> Iterator[tuple[str, Row, str]]:
    for name, peer in machine["peers"].items():
        aim = MOST_TIMES_PEER.get(name)
        yield name, peer, "–" if aim is None else f"{aim:g} or less"


def _peer_cells(name: str, cost: Row, goal: str, trial: Row) -> list[str]:
    costs = [
        f"{median(cost['seconds']):.3f}",
        f"{cost['cpu_seconds']:.3f}",
        f"{cost['most_bytes'] / 1e6:.0f} MB",
    ]
    if cost is trial:
        return [name, *costs, "", ""]
    middle, low, high = ratio_of_pairs(trial["seconds"], cost["seconds"])
    words = f"{middle:.2f} ({low:.2f} to {high:.2f})"
    return [name, *costs, _marked(words, MOST_TIMES_PEER.get(name, middle) >= middle), goal]


def _marked(words: str, is_met: bool) -> str:
    return words if is_met else f"**{words}**"


_COLUMNS = ["file", "collectors", "pairs", "speed", "p99 of a block", "bytes from the disk", "goal"]


def _observer_rows(trials: Sequence[Row]) -> Iterator[list[str]]:
    for reader, name in dict.fromkeys((one["reader"], one["collectors"]) for one in trials):
        if name in ("none", "busy"):
            continue
        rows = [one for one in trials if (one["reader"], one["beside"]) == (reader, name)]
        speed = _effect(rows, name, "bytes_per_second")
        cells = [_words(_effect(rows, name, key)) for key in ("block_p99_us", "device_read_bytes")]
        is_met = speed is not None and speed[0] >= LEAST_SPEED
        count = sum(one["collectors"] == name for one in rows)
        yield [reader, name, str(count), _marked(_words(speed), is_met), *cells, "-1 % or less"]


def _effect(rows: Sequence[Row], name: str, key: str) -> tuple[float, float, float] | None:
    """Return the ratio of a figure with these collectors to the same without."""
    values, bare = ([one[key] for one in rows if one["collectors"] == x] for x in (name, "none"))
    pairs = [pair for pair in zip(values, bare, strict=True) if all(pair)]
    return ratio_of_pairs(*zip(*pairs, strict=True)) if pairs else None


def _words(effect: tuple[float, float, float] | None) -> str:
    if effect is None:
        return "–"
    middle, low, high = (100 * (one - 1) for one in effect)
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"


def _gaps(trials: Sequence[Row]) -> str:
    busy = [one for one in trials if one["collectors"] == "busy"]
    others = [one for one in trials if one["collectors"] != "busy"]
    parts = [
        f"{1000 * median(one['median_gap_seconds'] for one in rows):.0f} ms in the median and"
        f" {1000 * max(one['longest_gap_seconds'] for one in rows):.0f} ms at most {when}"
        for rows, when in ((others, "beside the reader"), (busy, "beside four busy threads"))
        if rows
    ]
    return (
        f"The sampler's gaps, of 100 ms each by design: {'; '.join(parts)}. A gap of more than"
        " 1 s makes the sampler's trace `partial`.\n"
    )


def _growth(found: Row) -> Iterator[str]:
    yield _GROWTH
    costs: Sequence[Row] = found.get("growth", [])
    if not costs:
        yield _NOT_YET
    least = {one["fresh"]: one for one in reversed(costs)}
    rows = []
    for one in costs:
        each, first = (x["run_seconds"] / x["trials"] for x in (one, least[one["fresh"]]))
        rows.append([
            f"{one['trials']:,}",
            "in blocks" if one["fresh"] == "block" else "in one go",
            f"{1000 * each:.1f} ms",
            _marked(f"{each / first:.2f}", each / first <= MOST_GROWTH),
            f"{1000 * one['plan_seconds'] / one['trials']:.2f} ms",
            f"{1000 * one['resume_seconds'] / one['trials']:.2f} ms",
            f"{one['most_bytes'] / 1e6:.0f} MB",
        ])  # fmt: skip
    head = ["trials", "", "CPU a trial", "to the fewest", "planning", "reading again", "memory"]
    if costs:
        yield markdown_table(head, rows)
    yield _GROWTH_FOUND


def _fleets(found: Row) -> Iterator[str]:
    yield _FLEETS
    if fleets := found.get("fleets"):
        head = ["hosts", "trials", "CPU of the controller", "a trial", "memory"]
        rows = [
            [
                str(one["hosts"]),
                f"{one['trials']:,}",
                f"{one['cpu_seconds']:.1f} s",
                f"{1000 * one['cpu_seconds'] / one['trials']:.1f} ms",
                f"{one['most_bytes'] / 1e6:.0f} MB",
            ]
            for one in fleets
        ]
        yield markdown_table(head, rows)
    else:
        yield _NOT_YET


def _reports(found: Row) -> Iterator[str]:
    yield _REPORTS
    if "reports" not in found:
        yield _NOT_YET
        return
    costs: Sequence[Row] = found["reports"]
    further = [
        (more["cpu_seconds"] - one["cpu_seconds"]) / (more["trials"] - one["trials"])
        for one, more in pairwise(costs)
    ]
    marks = [_marked(f"{1000 * one:.1f} ms", one <= MOST_GROWTH * further[0]) for one in further]
    rows = [
        [
            f"{one['trials']:,}",
            f"{one['cpu_seconds']:.1f} s",
            f"{one['most_bytes'] / 1e6:.0f} MB",
            mark,
        ]
        for one, mark in zip(costs, ["–", *marks], strict=True)
    ]
    yield markdown_table(["trials", "CPU", "memory", "a further trial"], rows)
    yield _REPORTS_FOUND
