"""Power losses at random moments: `python -m reliability.power_loss [OPTION ...]`.

Campaigns run on a file system whose disk records every write and flush. Each cut makes the disk
that a power loss leaves there, whose runs are read and resumed. The same is done with campaigns
that leave out a part of fsync(2), to show that a loss is seen. It needs root, FUSE and loop
devices. Its processes, mounts and files are its own and end with it. The results are
docs/trust/power_loss.json.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reliability.campaign import arguments, run_isolated, tell, write_results
from reliability.power_loss.recorder import Cut, Disk, Flush, Write, read_journal
from reliability.power_loss.session import Session, judge, record_session

SEED = 20261125
CONTROLS = {"records.jsonl": r"/records\.jsonl$", "trials/": "/trials/"}
"""Patterns of the paths whose fsync(2) is left out."""
_AT_A_REPORT = 0.3
_SECTORS_BYTES = (512, 4096)


def main(words: Sequence[str] | None = None) -> int:
    """Cut the power; return 1 if a loss had a consequence that must not be."""
    parser = arguments("power_loss", isolated=True)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--control-cuts", type=int, default=200)
    parser.add_argument("--runs", type=int, default=5, help="campaigns on the recorded disk")
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args(words)
    if not asked.inside:
        return run_isolated("power_loss", words)
    tell(f"seed {asked.seed}")
    product = _cut_all(None, asked.cuts, asked)
    controls = {
        name: _counts(_cut_all(path, asked.control_cuts, asked)["cuts"])
        for name, path in CONTROLS.items()
    }
    stored = {"seed": asked.seed, **product, "controls": controls}
    write_results(asked.results / "power_loss.json", stored)
    return int(any(cut["wrong"] for cut in product["cuts"]))


def _counts(cuts: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    lossy, wrong = (sum(bool(cut[key]) for cut in cuts) for key in ("lost", "wrong"))
    return {"cuts": len(cuts), "with_a_lost_record": lossy, "wrong": wrong}


def _cut_all(unsynced: str | None, count: int, asked: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        session = record_session(Path(folder), asked.seed, asked.runs, unsynced)
        entries = read_journal(session.journal)
        disk, image = Disk(session.base, entries), session.base.with_name("cut.img")
        results = []
        cuts = sorted(_cuts(session, entries, asked.seed, count), key=lambda one: one.position)
        for cut in cuts:
            content, loss = disk.after(cut, random.Random(f"{asked.seed} loss {cut.number}"))
            image.write_bytes(content)
            judged = judge(image, session.reports, cut.reports)
            results.append({**asdict(cut), **asdict(loss), **asdict(judged)})
            tell(json.dumps(results[-1]))
        recorded = {
            "runs": asked.runs,
            "records": sum(one.record is not None for one in session.reports),
            "writes": sum(isinstance(one, Write) for one in entries),
            "flushes": sum(isinstance(one, Flush) for one in entries),
        }
        return {**recorded, "cuts": sorted(results, key=lambda one: one["number"])}


def _cuts(
    session: Session, entries: Sequence[Write | Flush], seed: int, count: int
) -> Iterator[Cut]:
    reported = [one.position for one in session.reports]
    writes = [one.end for one in entries if isinstance(one, Write) and one.end <= reported[-1]]
    for number in range(1, count + 1):
        chooser = random.Random(f"{seed} cut {number}")
        if chooser.random() < _AT_A_REPORT:
            reports = chooser.randint(1, len(reported))
            position = reported[reports - 1]
        else:
            position = chooser.choice(writes)
            reports = bisect_right(reported, position)
        kept = round(chooser.random(), 2)
        yield Cut(number, position, reports, chooser.choice(_SECTORS_BYTES), kept)


if __name__ == "__main__":
    sys.exit(main())
