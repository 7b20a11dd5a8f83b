"""The kills on this machine, as a section of docs/TRUST.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.report.model import markdown_table
from reliability.campaign import read_results

_HEAD = ["killed", "kills", "before a result", "after one"]


def local_kills_section(results: Path) -> Iterator[str]:
    stored = read_results(results / "local-kills.json")
    runs = stored["runs"]
    kills = [kill for run in runs for kill in run["kills"]]
    wrong = [(run["number"], sentence) for run in runs for sentence in run["wrong"]]
    counted = f"{len({number for number, _ in wrong})} of {len(runs)} runs"
    states = ", ".join(dict.fromkeys(run["code"] for run in runs))
    yield "## Kills on a real CPU\n"
    yield (
        f"{len(kills):,} SIGKILLs at random moments of {len(runs)} runs of short trials on a"
        " machine without systemd, whose limits cgroup files hold. A killed controller is started"
        " again by `--resume`. The last start was left alone. It had to finish with every result"
        " that was reported, none lost, doubled or changed. It may leave no process, cgroup, mount,"
        " setting of the disk or file beyond those of an unharmed run."
        f" **{counted} had a consequence that must not be.**"
        f" {sum(run['missed'] for run in runs)} more kills found their target no longer there."
        f" The seed {stored['seed']} and the number of a run choose its kills"
        " (`python -m reliability.local_kills`,"
        f" [trust/local-kills.json](trust/local-kills.json)). State of the code: {states}.\n"
    )
    yield markdown_table(_HEAD, list(_rows(kills)))
    yield from (f"- **still wrong**, run {number}: {sentence}\n" for number, sentence in wrong)


def _rows(kills: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for target in sorted({kill["target"] for kill in kills}):
        found = [kill["finished"] for kill in kills if kill["target"] == target]
        yield [target, *map(str, (len(found), found.count(0), len(found) - found.count(0)))]
