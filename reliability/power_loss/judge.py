"""The state after a power loss: what was reported is there, and the run can be resumed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pagecage.errors import EXIT_OK, PagecageError
from pagecage.model.run_files import check_traces
from pagecage.process import run
from pagecage.runner.run_folder import RunFolder, find_run
from reliability.power_loss.session import NAME, Report, identity, resume


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
