"""Campaigns on a recorded disk, and the judgement of what a power loss left of it."""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from pagecage.errors import EXIT_OK, PagecageError
from pagecage.model.plan import Plan
from pagecage.model.record import Record, record_digest, record_to_json
from pagecage.model.run_files import check_traces
from pagecage.process import PIPE, run, spawn
from pagecage.report.model import markdown_table
from pagecage.runner.campaign import Campaign
from pagecage.runner.run_folder import RunFolder, find_run
from reliability.campaign import arguments, read_results, run_isolated, tell, write_results
from reliability.disk_recorder import Cut, Disk, Flush, Write, read_journal
from tests.builders.campaigns import KIT, THREE
from tests.builders.plans import CHOICES, plan_of
from tests.fake_host.hosts import scripted
from tests.tree import ROOT

NAME = THREE.name
_BLOCKS = 14
_DISK_BYTES = 48 * 2**20
_MAKE = ("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-J", "size=4", "-E")
_AT_ONCE = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
_CHOICES = replace(CHOICES, repeats=_BLOCKS, fresh="never")
_CUT_OFF_LINE = b'{"attempt":1,"block":3,"ca'
_MOST_FIGURES, _MOST_TRACE_LINES, _MOST_PAGES = 800, 40_000, 128
_DEATHS = ("dies in a trace", "dies in a header")


@dataclass(frozen=True)
class Report:
    """A run's folder, or a record in it, of which the controller told its caller.

    `position` is the end of the journal at that moment.
    """

    position: int
    run_id: str
    record: str | None


@dataclass(frozen=True)
class Session:
    """The disk before the first write, the journal of all writes, and the reports in order."""

    base: Path
    journal: Path
    reports: tuple[Report, ...]


def identity(record: Record) -> str:
    """Return the name of a record with a digest of its content."""
    return f"{record.trial_id}.{record.attempt} {record_digest(record_to_json(record))}"


def resume(folder: RunFolder, script: Path) -> None:
    """Run the trials without a result of a run. Raises PagecageError as a campaign does."""
    host = scripted(script, script.parent / "spool")
    Campaign(host, folder.plan(), folder, KIT, lambda _: None).run()


def record_session(folder: Path, seed: int, runs: int, unsynced: str | None) -> Session:
    """Run campaigns on a recorded disk. fsync(2) does nothing with paths of the form `unsynced`."""
    base, journal = folder / "base.img", folder / "journal"
    with base.open("wb") as file:
        file.truncate(_DISK_BYTES)
    run([*_MAKE, _AT_ONCE, base])
    with _recorded_disk(folder, base, journal) as disk, _leaving_out(unsynced):
        made = _Campaigns(disk / "runs", folder / "script.json", journal)
        for number in range(runs):
            made.run(number, random.Random(f"{seed} run {number}"))
    return Session(base, journal, tuple(made.reports))


@contextmanager
def _leaving_out(unsynced: str | None) -> Iterator[None]:
    fsync = os.fsync

    def some(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if unsynced is None or not re.search(unsynced, str(path)):
            fsync(descriptor)

    with mock.patch("os.fsync", some):
        yield


@contextmanager
def _recorded_disk(folder: Path, base: Path, journal: Path) -> Iterator[Path]:
    image, file, place = folder / "recorded.img", folder / "recorded", folder / "disk"
    run(["cp", "--sparse=always", base, image])
    journal.unlink(missing_ok=True)
    file.touch()
    place.mkdir(exist_ok=True)
    paths = (image, journal, file)
    argv = [sys.executable, "-m", "reliability.disk_recorder", *map(str, paths)]
    recorder = spawn(argv, stdout=PIPE, stderr=None, cwd=ROOT)
    assert recorder.stdout is not None
    with recorder.stdout as output:
        if output.readline() != b"ready\n":
            raise RuntimeError(f"the recorder ended with status {recorder.wait()}")
    try:
        run(["mount", "-o", "loop", file, place])
        try:
            yield place
        finally:
            run(["umount", place])
    finally:
        run(["umount", file])
        recorder.wait()


class _Campaigns:
    """Campaigns one after another, whose reports are noted."""

    def __init__(self, runs: Path, script: Path, journal: Path) -> None:
        self._runs, self._script, self._journal = runs, script, journal
        self.reports: list[Report] = []

    def run(self, number: int, chooser: random.Random) -> None:
        """Run a campaign with records and traces of many lengths, and an agent that dies."""
        plan = plan_of(THREE, _CHOICES, f"20261124T10{number:02}00Z-{NAME}-vm")
        self._script.write_text(json.dumps(_script(plan, chooser)))
        folder = RunFolder.create(self._runs, plan)
        self._report(plan.run_id, None)
        cut_off = chooser.choice(plan.trials).trial_id

        def listen(event: Mapping[str, Any]) -> None:
            _write_unsynced(self._runs.with_name("neighbour"), chooser.randrange(_MOST_PAGES))
            if event["event"] == "record":
                self._report(plan.run_id, identity(event["record"]))
            if event["event"] == "trial" and event["trial_id"] == cut_off:
                with folder.records_path.open("ab") as file:
                    file.write(_CUT_OFF_LINE)  # as a killed writer leaves it

        host = scripted(self._script, self._script.parent / "spool")
        summary = Campaign(host, plan, folder, KIT, listen).run()
        if summary.unfinished:
            raise RuntimeError(f"{summary.unfinished} trials have no result")

    def _report(self, run_id: str, record: str | None) -> None:
        self.reports.append(Report(self._journal.stat().st_size, run_id, record))


def _write_unsynced(path: Path, pages: int) -> None:
    """Write as another program would that needs no fsync(2); the kernel begins to write it back."""
    with path.open("wb", buffering=0) as file:
        file.write(os.urandom(4096) * pages)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _script(plan: Plan, chooser: random.Random) -> dict[str, Any]:
    ids = [trial.trial_id for trial in plan.trials]
    figures = {
        trial: {f"figure_{n}": chooser.random() for n in range(chooser.randrange(_MOST_FIGURES))}
        for trial in ids
    }
    lines = {trial: int(_MOST_TRACE_LINES * chooser.random() ** 4) for trial in ids}
    deaths = {trial: [chooser.choice(_DEATHS)] for trial in ids if chooser.random() < 1 / 8}
    return {"figures": figures, "trace_lines": lines, **deaths}


@dataclass
class Judged:
    """The consequences of a power loss.

    `lost` counts the reported records that are gone, `unreported` the others that are there, and
    `resumed` the records that the resumed run added.
    """

    lost: int = 0
    unreported: int = 0
    resumed: int = 0
    wrong: list[str] = field(default_factory=list)


def judge(image: Path, reports: Sequence[Report], told: int) -> Judged:
    """Mount what a power loss left of a disk after the first `told` reports; judge and resume."""
    judged, place = Judged(), image.with_suffix(".mounted")
    place.mkdir(exist_ok=True)
    try:
        run(["mount", "-o", "loop", image, place])
    except PagecageError as error:
        judged.wrong.append(f"the file system cannot be mounted: {error.message}")
        return judged
    try:
        for run_id in dict.fromkeys(one.run_id for one in reports):
            _judge_run(place / "runs" / run_id, reports, told, judged)
        if told:
            _resume_newest(place / "runs", reports[told - 1].run_id, judged)
    except (PagecageError, OSError, ValueError) as error:
        judged.wrong.append(f"{type(error).__name__}: {error}")
    finally:
        run(["umount", place])
    judged.wrong = list(dict.fromkeys(one.replace(f"{place}/", "") for one in judged.wrong))
    checked = run(["e2fsck", "-f", "-n", image], check=False)
    if checked.status != EXIT_OK:
        judged.wrong.append(f"the file system is damaged: {checked.stdout}")
    return judged


def _judge_run(path: Path, reports: Sequence[Report], told: int, judged: Judged) -> None:
    written = [one.record for one in reports if one.run_id == path.name and one.record]
    seen = [one for one in reports[:told] if one.run_id == path.name]
    reported = [one.record for one in seen if one.record]
    found: list[str] = []
    if path.exists():
        found = _sound_records(RunFolder(path), judged)
    elif seen:
        judged.wrong.append(f"the reported run {path.name} is lost")
    lost = [one for one in reported if one not in found]
    judged.lost += len(lost)
    judged.unreported += len(set(found) - set(reported))
    if lost:
        judged.wrong.append(f"{path.name}: {len(lost)} reported records are lost")
    if found != written[: len(found)]:
        judged.wrong.append(f"{path.name} has other records than were written")


def _sound_records(folder: RunFolder, judged: Judged) -> list[str]:
    try:
        folder.plan()
        for facts in (folder.path / "facts").glob("*.json"):
            json.loads(facts.read_text())
        records = folder.records()
        attempts = [(one.trial_id, one.number) for one in folder.attempts()]
    except (PagecageError, OSError, ValueError) as error:
        judged.wrong.append(f"{folder.path.name} cannot be read: {error}")
        return []
    if attempts != [(one.trial_id, one.attempt) for one in records]:
        judged.wrong.append(f"the readers of {folder.path.name} do not agree")
    if damages := [one for record in records for one in check_traces(folder.path, record)]:
        judged.wrong.append(f"{folder.path.name}: {len(damages)} times like {damages[0]}")
    return [identity(record) for record in records]


def _resume_newest(runs: Path, reported: str, judged: Judged) -> None:
    folder = find_run(runs, NAME)
    if folder.path.name < reported:
        judged.wrong.append(f"latest-{NAME} names {folder.path.name} instead of {reported}")
    before = [identity(record) for record in folder.records()]
    script = runs.parent.with_suffix(".script")
    script.write_text("{}")
    resume(folder, script)
    found = _sound_records(folder, judged)
    judged.resumed = len(found) - len(before)
    if found[: len(before)] != before:
        judged.wrong.append("the resumed run changed earlier records")
    counts = Counter((one.trial_id, one.number) for one in folder.attempts())
    judged.wrong += [f"attempt {one} has {n} records" for one, n in counts.items() if n > 1]
    if left := folder.remaining(folder.plan()):
        judged.wrong.append(f"{len(left)} trials have no result after the resumed run")


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
        f" power was cut {len(cuts)} times: at a report, or after any write. The disk keeps all"
        " flushed writes, and a random part of the later writes, in random order and torn."
        f" {sum(bool(one['uncovered']) for one in cuts)} cuts had such writes,"
        f" {sum(one['uncovered'] for one in cuts)} in all, of which"
        f" {sum(one['kept'] for one in cuts)} were kept and {sum(one['torn'] for one in cuts)} of"
        " these torn. Each reported record must exist with complete traces, and the newest run"
        " must finish after it is resumed."
        f" **{lossy} of {len(cuts)} cuts lost a reported record; {cut(results)[1]} had"
        " any forbidden consequence.**\n"
    )
    yield "These campaigns without some of the fsync(2) calls show that a cut detects errors:\n"
    counts = {"nothing": {"cuts": len(cuts), "with_a_lost_record": lossy}, **stored["controls"]}
    counts["nothing"]["wrong"] = cut(results)[1]
    yield markdown_table(_HEAD, [[name, *map(str, one.values())] for name, one in counts.items()])
    yield from (f"- **still wrong**, cut {number}: {sentence}\n" for number, sentence in wrong)


if __name__ == "__main__":
    sys.exit(main())
