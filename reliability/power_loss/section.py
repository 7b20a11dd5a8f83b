"""The power losses, as a section of docs/TRUST.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pagecage.report.model import markdown_table
from reliability.campaign import read_results

_HEAD = ["fsync(2) left out of", "power losses", "with a lost record", "with anything wrong"]


def cut(results: Path) -> tuple[int, int]:
    """Return the number of cuts, and of those with a consequence that must not be."""
    stored = read_results(results / "power_loss.json", {"cuts": []})
    return len(stored["cuts"]), sum(bool(one["wrong"]) for one in stored["cuts"])


def power_loss_section(results: Path) -> Iterator[str]:
    if not (stored := read_results(results / "power_loss.json")):
        return
    cuts = stored["cuts"]
    lossy = sum(bool(one["lost"]) for one in cuts)
    wrong = [(one["number"], sentence) for one in cuts for sentence in one["wrong"]]
    yield "## Power losses\n"
    yield (
        f"{stored['runs']} campaigns wrote {stored['records']} records and their traces on ext4,"
        f" whose disk recorded {stored['writes']:,} writes and {stored['flushes']:,} flushes. The"
        f" power was cut {len(cuts)} times: at a report, or behind any write. The disk keeps what a"
        " finished flush covers, and a random part of the later writes, in random order and torn."
        f" {sum(bool(one['uncovered']) for one in cuts)} cuts had such writes,"
        f" {sum(one['uncovered'] for one in cuts)} in all, of which"
        f" {sum(one['kept'] for one in cuts)} were kept and {sum(one['torn'] for one in cuts)} of"
        " these torn. Each record that had been reported must be there, its traces whole, and the"
        " newest run must be resumed to its end."
        f" **{lossy} of {len(cuts)} cuts lost a reported record; {cut(results)[1]} had any"
        " consequence that must not be.**\n"
    )
    yield "The same campaigns without a part of the writer's fsync(2) show what a cut finds:\n"
    counts = {"nothing": {"cuts": len(cuts), "with_a_lost_record": lossy}, **stored["controls"]}
    counts["nothing"]["wrong"] = cut(results)[1]
    yield markdown_table(_HEAD, [[name, *map(str, one.values())] for name, one in counts.items()])
    yield from (f"- **still wrong**, cut {number}: {sentence}\n" for number, sentence in wrong)
