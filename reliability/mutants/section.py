"""The section of docs/TRUST.md about lies: the share that is caught, and those that are not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reliability.mutants.lies import EQUIVALENT, INVISIBLE, SURVIVED

RESULTS = "mutants.json"
_CAUGHT = "caught"
Row = Mapping[str, Any]
_INTRODUCTION = """A lie was planted in a trial of the real agent on a simulated host, at every
moment where it could happen. The kernel's files and the workload lie; agent and verdicts are the
real ones. A lie is *caught* if the trial is refused, has no answer, or is excluded by a named
verdict, so that no table counts it as proven. It is *equivalent* if it changes nothing that a
figure rests on, and *invisible* if no counter can show it. [METHODOLOGY.md](METHODOLOGY.md) has the
thresholds below which a lie is too small to be seen. They were chosen from stored trials, so that
these are no independent test of false alarms.
"""


def mutants_summary(results: Path) -> Iterator[str]:
    """Yield the summary of planted lies, also of those in the guest."""
    counted = Counter(map(_state, _read(results)))
    told = sum(counted.values()) - counted[EQUIVALENT]
    yield (
        f"**Lies**: {counted[_CAUGHT]} of {told} planted lies that change a figure are caught,"
        f" nothing can show {counted[INVISIBLE]}, and {counted[SURVIVED]} survived."
    )


def mutants_section(results: Path) -> Iterator[str]:
    rows = _read(results)
    if not rows:
        return
    counted = Counter(map(_state, rows))
    yield "## Lies that are caught\n"
    yield _INTRODUCTION
    tried = len(rows) - counted[EQUIVALENT]
    yield (
        f"{len(rows)} lies were planted, and {counted[EQUIVALENT]} of them are equivalent. Of the"
        f" other {tried}, {counted[_CAUGHT]} were caught ({100 * counted[_CAUGHT] / tried:.1f}"
        f" %), {counted[INVISIBLE]} are invisible and {counted[SURVIVED]} survived.\n"
    )
    for state, title in (
        (INVISIBLE, "Lies that nothing shows from outside:"),
        (SURVIVED, "Lies that survived:"),
    ):
        if named := [row for row in rows if _state(row) == state]:
            yield f"{title}\n"
            yield "\n".join(_named(named)) + "\n"


def _read(results: Path) -> list[Row]:
    path = results / RESULTS
    return list(json.loads(path.read_text())["mutants"]) if path.exists() else []


def _state(row: Row) -> str:
    if row["found"] != SURVIVED:
        return _CAUGHT
    return row["expected"] if row["expected"] in (EQUIVALENT, INVISIBLE) else SURVIVED


def _named(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each reason, with the lies for which it holds."""
    by_reason: dict[str, dict[str, None]] = {}
    for row in rows:
        by_reason.setdefault(row["why"], {})[f"{row['group']}: {row['lie']}"] = None
    yield from (f"- {'; '.join(lies)}. {why}".rstrip() for why, lies in by_reason.items())
