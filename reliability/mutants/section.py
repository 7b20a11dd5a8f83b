"""The section of docs/TRUST.md about lies: the share that is caught, and those that are not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.report.model import markdown_table
from reliability.mutants.lies import EQUIVALENT, INVISIBLE, SURVIVED

RESULTS = "mutants.json"
Row = Mapping[str, Any]
_INTRODUCTION = """A lie was planted in a trial of the real agent on a simulated host, at every
moment where it could happen. The kernel's files and the workload lie; agent and verdicts are the
real ones. A lie is *caught* if the trial is refused, has no answer, or is excluded by a named
verdict, so that no table counts it as proven. It is *equivalent* if it changes nothing that a
figure rests on. It is *invisible* if no counter can show it.
"""
_LIMITS = """The smallest lies that are seen:

- A limit that is changed and put back within 0.1 s may lie between two samples.
  On a loaded machine one of 0.19 s was missed once. The lies in this table last 0.4 s since.
- No stored trial is called contradictory on a quiet host, but the thresholds were chosen from these
  trials: this is no independent test of false alarms.
- A pause of the machine, and time on the outer host, are seen from 10 % of the measured part on, at
  least 0.5 s and at most 1.5 s.
- A workload may leave 10 % of the measured part out of its own time, at least 0.15 s and at most
  1.5 s; on an emulated CPU 30 %, at least 0.6 s.
- A disk is slow from three times the time per request of the other repeats on, if that costs a
  tenth of the measured part. If most repeats are as slow, none is.
- Bytes that may remain unexplained are 1 MiB or 1 % of the files, and 2 % between the cgroup and
  its disk.
- What a load generator reports cannot be held against the server's counters, but for a server that
  did nothing at all.
"""


def mutants_section(results: Path) -> Iterator[str]:
    path = results / RESULTS
    if not path.exists():
        return
    rows: list[Row] = json.loads(path.read_text())["mutants"]
    counted = Counter(_state(row) for row in rows)
    yield "## Lies that are caught\n"
    yield _INTRODUCTION
    tried = len(rows) - counted[EQUIVALENT]
    yield (
        f"{len(rows)} lies were planted, and {counted[EQUIVALENT]} of them are equivalent. Of the"
        f" other {tried}, {counted['caught']} were caught ({100 * counted['caught'] / tried:.1f}"
        f" %), {counted[INVISIBLE]} are invisible and {counted[SURVIVED]} survived.\n"
    )
    yield _by_group(rows)
    yield "What caught them:\n"
    yield _by_verdict(rows)
    for state, title in (
        (INVISIBLE, "Lies that nothing shows from outside:"),
        (SURVIVED, "Lies that survived:"),
        (EQUIVALENT, "Lies that change nothing:"),
    ):
        named = [row for row in rows if _state(row) == state]
        if named:
            yield f"{title}\n"
            yield "\n".join(dict.fromkeys(_named(row) for row in named)) + "\n"
    yield _LIMITS


def _state(row: Row) -> str:
    if row["found"] != SURVIVED:
        return "caught"
    return row["expected"] if row["expected"] in (EQUIVALENT, INVISIBLE) else SURVIVED


def _named(row: Row) -> str:
    moment = f", at `{row['moment']}`" if row["moment"] else ""
    return f"- {row['group']}: {row['lie']}{moment}. {row['why']}".rstrip()


def _by_group(rows: Sequence[Row]) -> str:
    states = ("caught", INVISIBLE, SURVIVED, EQUIVALENT)
    groups = list(dict.fromkeys(row["group"] for row in rows))
    table = [
        [
            group,
            *(
                str(sum(row["group"] == group and _state(row) == state for row in rows))
                for state in states
            ),
        ]
        for group in groups
    ]
    return markdown_table(["class", *states], table)


def _by_verdict(rows: Sequence[Row]) -> str:
    found = Counter(row["found"].replace(": ", " ") for row in rows if _state(row) == "caught")
    return markdown_table(
        ["verdict", "lies"], [[name, str(count)] for name, count in found.most_common()]
    )
