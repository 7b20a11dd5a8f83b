"""The section of docs/TRUST.md about independent witnesses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.report.model import markdown_table
from reliability.disks.section import worst_cases
from reliability.witnesses.accounts import SLACK, TOLERANCE, Difference, differences, unexplained

_HEAD = """## Independent witnesses

Up to five witnesses counted the same trials: fio in its JSON, `io.stat` of the trial's slice,
`/proc/diskstats` of the guest's disk, QEMU by `query-blockstats`, and the simulated volume's own
account. They agree within {tolerance:.0f} %, or {requests} requests or {kib} KiB. Requests that the
scheduler merged are added to those of the disk where the other witness stands above the scheduler.
"""
_FOUND = """Some witnesses must differ. Such a comparison is excused by a reason that follows from
the load, the two witnesses and the requests that were merged. Some of the reasons were found by the
first run. The file has every comparison with both values, the difference, and the reason if it is
excused.
"""


def counts_summary(results: Path) -> Iterator[str]:
    """Yield the summary of witnesses and disks."""
    trials = _trials(results)
    found = [one for trial in trials for one in differences(trial)]
    excused = sum(one.reason is not None for one in found)
    limits, leaks = worst_cases(results)
    yield (
        f"**Counters**: of {len(found)} comparisons of two witnesses, {excused} are excused by a"
        f" stated reason, and {len(unexplained(trials))} of the others are apart. Of {limits}"
        f" limits on stacks of disks, {leaks} read back well and did not hold."
    )


def witnesses_section(results: Path) -> Iterator[str]:
    trials = _trials(results)
    found = [one for trial in trials for one in differences(trial)]
    must_agree = [one for one in found if one.reason is None]
    apart = unexplained(trials)
    yield _HEAD.format(
        tolerance=100 * TOLERANCE, requests=SLACK["reads"], kib=SLACK["read bytes"] // 1024
    )
    yield (
        f"{len(trials)} trials gave {len(found)} comparisons. {len(must_agree)} must agree, and"
        f" {len(must_agree) - len(apart)} do ({_apart(len(apart))}). {len(found) - len(must_agree)}"
        " are excused.\n"
    )
    yield _FOUND
    yield _by_reason(found)


def _trials(results: Path) -> list[Mapping[str, Any]]:
    return list(json.loads((results / "witnesses.json").read_text())["trials"])


def _apart(count: int) -> str:
    return "none is apart" if not count else f"**{count} apart**"


def _by_reason(found: Sequence[Difference]) -> str:
    groups: dict[str | None, list[Difference]] = {None: []}
    for one in found:
        groups.setdefault(one.reason, []).append(one)
    head = ["why they may differ", "comparisons", "agree", "largest difference"]
    return markdown_table(
        head,
        [
            [
                reason or "they may not",
                str(len(ones)),
                str(sum(one.is_agreement for one in ones)),
                _share(max((one.share for one in ones), key=abs, default=0.0)),
            ]
            for reason, ones in groups.items()
        ],
    )


def _share(share: float) -> str:
    return "0" if share == 0 else f"{100 * share:+.2f} %"
