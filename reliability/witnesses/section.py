"""The section of docs/TRUST.md about independent witnesses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pagecage.report.model import markdown_table
from reliability.witnesses.accounts import TOLERANCE, PairSummary, summaries, unexplained

_HEAD = """## Independent witnesses

Five witnesses counted the same trials:

- fio, in its JSON (`io_bytes`, `total_ios`);
- `io.stat` of the trial's slice;
- `/proc/diskstats` of the guest's disk;
- QEMU, by `query-blockstats`;
- the simulated volume's own account, where it served the disk.

They agree within {tolerance}, or 4 requests or 64 KiB. Requests that the scheduler merged are
added to those of the disk where the other witness stands above the scheduler.
"""

_FOUND = """In other comparisons two witnesses must differ. 14 of them were first expected to
agree, and were moved here with their reasons after the first run. This campaign found three:

- Read-ahead goes past the end of what fio reads.
- The first flushes of an old file are charged to the cgroup that wrote it before, so that no limit
  of the trial holds for them. The verdict of such a trial is `not_quiet`.
- QEMU merged adjacent requests before the simulated volume counted them: 45 % of sequential direct
  reads. The volume's disk is attached without merging since, which was not measured again.

Outside of this campaign, io.stat stood still in 2 of about 800 trials while the disk read on, and
missed up to half of the reads. The page cache that the slice is charged for shows it. Such a trial
is `not_prepared` and repeated ([METHODOLOGY.md](METHODOLOGY.md), "Cache states").
"""


def witnesses_section(results: Path) -> Iterator[str]:
    found: dict[str, Any] = json.loads((results / "witnesses.json").read_text())
    trials = found["trials"]
    yield _HEAD.format(tolerance=f"{100 * TOLERANCE:.0f} %")
    rows = summaries(trials)
    agreeing = [row for row in rows if row.reason is None]
    apart = unexplained(trials)
    compared = sum(row.trials for row in agreeing)
    yield (
        f"{len(trials)} trials gave {compared} comparisons. {compared - len(apart)} agree"
        f" ({_apart(len(apart))}).\n"
    )
    yield _table(agreeing)
    yield _FOUND
    yield _table([row for row in rows if row.reason is not None], with_reason=True)


def _apart(count: int) -> str:
    return "none is apart" if not count else f"**{count} apart**"


def _table(rows: Sequence[PairSummary], *, with_reason: bool = False) -> str:
    head = ["pair", "quantity", "trials", "agree", "median", "worst", "worst trial"]
    return markdown_table(
        [*head, *(["why"] if with_reason else [])],
        [
            [
                " – ".join(row.pair),
                row.quantity,
                str(row.trials),
                str(row.agreeing),
                _share(row.median_share),
                _share(row.worst.share),
                row.worst.trial if row.worst.share else "–",
                *([str(row.reason)] if with_reason else []),
            ]
            for row in sorted(rows, key=lambda row: (row.quantity, row.pair))
        ],
    )


def _share(share: float) -> str:
    return "0" if share == 0 else f"{100 * share:+.2f} %"
