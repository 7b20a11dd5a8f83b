"""The power losses, as a section of docs/TRUST.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pagecage.report.model import markdown_table
from reliability.campaign import read_results

_HEAD = ["fsync(2) left out of", "power losses", "with a lost record", "with anything wrong"]


def power_loss_section(results: Path) -> Iterator[str]:
    if not (stored := read_results(results / "power_loss.json")):
        return
    cuts = stored["cuts"]
    uncovered = [cut for cut in cuts if cut["uncovered"]]
    lossy = sum(bool(cut["lost"]) for cut in cuts)
    wrong = [(cut["number"], sentence) for cut in cuts for sentence in cut["wrong"]]
    yield "## Power losses\n"
    yield (
        f"{stored['runs']} campaigns with a scripted agent, which dies in some of its trials, wrote"
        f" {stored['records']} records and their traces on ext4, alongside a program that syncs"
        " nothing. Its disk recorded"
        f" {stored['writes']:,} writes and {stored['flushes']:,} flushes."
        f" The power was cut {len(cuts)} times: at the moment of a report, or behind any write. The"
        " disk keeps what a finished flush covers. Of the later writes it keeps a random part, in"
        f" random order and torn at 512 or 4096 bytes. {len(uncovered)} cuts had such writes,"
        f" {sum(cut['uncovered'] for cut in cuts)} in all, of which"
        f" {sum(cut['kept'] for cut in cuts)} were kept and {sum(cut['torn'] for cut in cuts)} of"
        " these torn. Then the file system was mounted, pagecage's own readers read its runs, and"
        f" the newest one was resumed to its end, which added"
        f" {sum(cut['resumed'] for cut in cuts):,} records. Each record and folder that the"
        " controller had reported to its caller must be there, its traces whole. No damaged line"
        f" may count as a record. **{lossy} of {len(cuts)} cuts lost a reported record;"
        f" {len({number for number, _ in wrong})} had any consequence that must not be.** The seed"
        f" {stored['seed']} chooses the cuts (`python -m reliability.power_loss`,"
        " [trust/power_loss.json](trust/power_loss.json)). State of the code:"
        f" {stored['code']}.\n"
    )
    yield "The same campaigns without a part of the writer's fsync(2) show what a cut finds:\n"
    counts = {"nothing": {"cuts": len(cuts), "with_a_lost_record": lossy}, **stored["controls"]}
    counts["nothing"]["wrong"] = len({number for number, _ in wrong})
    yield markdown_table(_HEAD, [[name, *map(str, one.values())] for name, one in counts.items()])
    yield from (f"- **still wrong**, cut {number}: {sentence}\n" for number, sentence in wrong)
