"""Edits of a recorded run: of its records, its plan, its traces, its bundle and its baseline."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.data.baseline import baseline_of, baseline_sha256, load_baseline
from analysis.data.load import JudgedTrial, load_run
from pagecage.bundle.pack import pack
from pagecage.bundle.unpack import unpack
from pagecage.errors import PagecageError
from pagecage.model.record import append_record, record_digest
from pagecage.model.run_files import plan_sha256
from pagecage.model.trial import trial_to_json
from reliability.mutants.lies import SURVIVED, Lie, Mutant
from reliability.mutants.simulation import Simulated, simulated_trial, verdict_of

HOW = ("as it is", "digest removed", "digest made again")
"""The editor's treatment of the record's digest."""
Data = dict[str, Any]
HONEST = Mutant(Lie("files", "none", SURVIVED), "")


def build(folder: Path, honest: Simulated) -> Path:
    """Write a run of one trial with two repeats, as a campaign does."""
    first = simulated_trial(HONEST)
    trials = [trial_to_json(first), {**trial_to_json(first), "trial_id": "r2_tight", "repeat": 2}]
    plan: Data = {
        "plan_version": 1,
        "run_id": honest.record.run_id,
        "experiment": "test",
        "definition": {
            "question": "How long does a pass take?",
            "response": "read_seconds",
            "factors": {"cage": ["tight"]},
            "workload": {"program": "pcread"},
        },
        "host": "local",
        "size": "smoke",
        "seed": 1,
        "command": "pagecage run test",
        "trials": trials,
    }
    plan["plan_sha256"] = plan_sha256(plan)
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "facts").mkdir()
    for trial in trials:
        name = f"trials/{trial['trial_id']}.1/sampler.jsonl"
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in honest.rows))
        record = replace(
            honest.record,
            trial_id=trial["trial_id"],
            repeat=trial["repeat"],
            plan_sha256=plan["plan_sha256"],
            traces={"sampler": name},
        )
        append_record(folder / "records.jsonl", record)
    return folder


def _records(run: Path) -> list[Data]:
    return [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]


def _write(run: Path, records: list[Data]) -> None:
    (run / "records.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))


def _at(data: Data, path: str) -> tuple[Data, str]:
    *above, last = path.split("/")
    for key in above:
        data = data[key]
    return data, last


def edited(path: str, change: Callable[[Any], Any]) -> Callable[[Path, str], None]:
    """Return an edit of one value of the last record."""

    def edit(run: Path, how: str) -> None:
        records = _records(run)
        where, key = _at(records[-1], path)
        where[key] = change(where.get(key))
        if how == "digest removed":
            for record in records:
                record.pop("record_sha256")
        if how == "digest made again":
            records[-1]["record_sha256"] = record_digest(records[-1])
        _write(run, records)

    return edit


def _halved(value: Any) -> Any:
    return value / 2


EDITS: Mapping[str, Callable[[Path, str], None]] = {
    **{
        f"figure {name}": edited(f"response/{name}", _halved)
        for name in ("read_seconds", "device_read_bytes", "device_reads", "bytes_per_second")
    },
    "length of the measured part": edited("measured/seconds", _halved),
    "the workload's seconds": edited("workload/end/seconds", _halved),
    "outcome of a wrong answer": edited("workload/checksum_ok", lambda _: False),
    "requested limit": edited("cage/requested/IOReadBandwidthMax", lambda _: 10_000_000),
    "limit as read back": edited("cage/read_back/io.max.rbps", lambda _: "max"),
    "limit of a record with a leak": edited(
        "cage/read_back_after/io.max.rbps", lambda _: "100000000"
    ),
    "bytes resident at the start": edited("cache/resident_bytes_before", lambda _: 4096),
    "counter after the part": edited("counters/after/device/sectors_read", _halved),
    "emulated": edited("emulated", lambda _: True),
    "treatment": edited("treatment", lambda _: {"cage": "another"}),
}
"""Edits of one value. Each makes the record worse or better than it was; both must be seen."""


def _without(run: Path) -> None:
    _write(run, _records(run)[:-1])


def _twice(run: Path) -> None:
    records = _records(run)
    _write(run, [*records, records[-1]])


def _attempt(run: Path) -> None:
    records = _records(run)
    records[-1]["attempt"] = 2
    records[-1]["record_sha256"] = record_digest(records[-1])
    _write(run, records)


def _plan(run: Path) -> None:
    plan = json.loads((run / "plan.json").read_text())
    plan["trials"][0]["cage"]["properties"]["IOReadBandwidthMax"] = 40_000_000
    (run / "plan.json").write_text(json.dumps(plan))


def _plan_again(run: Path) -> None:
    _plan(run)
    plan = json.loads((run / "plan.json").read_text())
    plan["plan_sha256"] = plan_sha256(plan)
    (run / "plan.json").write_text(json.dumps(plan))


def _trial_and_plan(run: Path) -> None:
    plan, records = json.loads((run / "plan.json").read_text()), _records(run)[:-1]
    plan["trials"] = plan["trials"][:-1]
    plan["plan_sha256"] = records[0]["plan_sha256"] = plan_sha256(plan)
    records[0]["record_sha256"] = record_digest(records[0])
    (run / "plan.json").write_text(json.dumps(plan))
    _write(run, records)


def _everywhere(run: Path) -> None:
    """Make a figure 5 % smaller in every place where it stands, with the digest made again."""
    records = _records(run)
    record = records[-1]
    for name in ("read_seconds", "full_pass_seconds"):
        record["response"][name] *= 0.95
    record["response"]["bytes_per_second"] /= 0.95
    record["workload"]["end"]["seconds"] *= 0.95
    record["record_sha256"] = record_digest(record)
    _write(run, records)


def _samples(run: Path) -> None:
    path = run / "trials/r2_tight.1/sampler.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows[len(rows) // 2 :]:
        if row["io"]:
            row["io"]["rbytes"] //= 2
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


FOLDERS: Mapping[str, Callable[[Path], None]] = {
    "trial removed": _without,
    "trial recorded twice": _twice,
    "first attempt removed": _attempt,
    "plan edited": _plan,
    "plan edited, digest made again": _plan_again,
    "trial removed from records and plan, digests made again": _trial_and_plan,
    "samples edited": _samples,
    "figure 5 % smaller in all places, digest made again": _everywhere,
}


def judge(run: Path) -> str:
    """Return what keeps the run from being shown as two proven trials."""
    try:
        loaded = load_run(run)
    except PagecageError as error:
        return f"refused: {error.message.rpartition('/')[2]}"
    for trial in loaded.trials:
        if not trial.is_included:
            return f"{_kind(trial)}: {'; '.join(trial.verdicts.reasons) or trial.record.outcome}"
        if trial.verdicts.emulated.verdict != "no":
            return "emulated: yes: the record says so"
    if len(loaded.trials) < loaded.plan["planned"]:
        return f"shown as {len(loaded.trials)} of {loaded.plan['planned']} trials"
    return SURVIVED


def _kind(trial: JudgedTrial) -> str:
    return verdict_of(trial.record, trial.verdicts).replace(": ", " ")


def results(honest: Simulated, scratch: Path) -> Iterator[tuple[str, str, str, str]]:
    whole = build(scratch / "whole", honest)
    assert judge(whole) == SURVIVED, judge(whole)
    for number, (name, edit) in enumerate(EDITS.items()):
        for way, how in enumerate(HOW):
            run = shutil.copytree(whole, scratch / f"{number}-{way}")
            edit(run, how)
            yield "records", name, how, judge(run)
    for number, (name, change) in enumerate(FOLDERS.items()):
        run = shutil.copytree(whole, scratch / f"folder-{number}")
        change(run)
        yield "run folders", name, "", judge(run)
    yield from _bundles(whole, scratch)
    yield from _baselines(whole, scratch)


def _bundles(whole: Path, scratch: Path) -> Iterator[tuple[str, str, str, str]]:
    edit = EDITS["figure read_seconds"]
    for number, how in enumerate(("as it is", "manifest made again")):
        bundle, changed = scratch / f"{number}.zip", shutil.copytree(whole, scratch / f"b{number}")
        pack(whole, bundle, redacted=False)
        edit(changed, "as it is")
        if how == "as it is":
            content = (changed / "records.jsonl").read_bytes()
            with zipfile.ZipFile(bundle) as archive:
                files = {entry: archive.read(entry) for entry in archive.namelist()}
            with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
                for entry, data in {**files, "records.jsonl": content}.items():
                    archive.writestr(entry, data)
        else:
            bundle.unlink()
            try:
                pack(changed, bundle, redacted=False)
            except PagecageError as error:
                yield "bundles", "figure edited", how, f"refused: {error.message[-60:]}"
                continue
        try:
            unpack(bundle, scratch / f"unpacked-{number}")
        except PagecageError as error:
            yield "bundles", "figure edited", how, f"refused: {error.message.rpartition('/')[2]}"
            continue
        yield "bundles", "figure edited", how, judge(scratch / f"unpacked-{number}")


def _baselines(whole: Path, scratch: Path) -> Iterator[tuple[str, str, str, str]]:
    path = scratch / "baseline.json"
    data = baseline_of(load_run(whole), ["read_seconds"])
    for how in ("as it is", "digest made again"):
        changed = json.loads(json.dumps(data))
        changed["treatments"][0]["trials"][0]["response"]["read_seconds"] /= 2
        if how != "as it is":
            changed["baseline_sha256"] = baseline_sha256(changed)
        path.write_text(json.dumps(changed))
        try:
            load_baseline(path)
        except PagecageError as error:
            yield "baselines", "figure edited", how, f"refused: {error.message.rpartition('/')[2]}"
        else:
            yield "baselines", "figure edited", how, SURVIVED


FORGED = (
    "A figure that is changed in every place, with new digests for all of them, makes"
    " another record. Only a digest that is published elsewhere shows it."
)
FORGED_NAMES = (
    "trial removed from records and plan, digests made again",
    "figure 5 % smaller in all places, digest made again",
)
