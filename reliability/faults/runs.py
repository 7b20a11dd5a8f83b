"""Scenarios `run` and `resume`: the controller, with an agent that follows a script."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pagecage.errors import EXIT_OK, EXIT_USAGE, PagecageError
from pagecage.hosts.agent_package import AgentPackage, make_agent_package
from pagecage.model.record import Record, record_to_json
from pagecage.runner.run_folder import RunFolder
from reliability.faults.calls import command_line
from reliability.faults.injection import KILLED, NO_ANSWER, TORN, Point, faults_at
from reliability.faults.scenario import (
    Scenario,
    own_role,
    pagecage,
    replace_everywhere,
    stay_in,
    with_small_analysis,
)
from tests.fake_host.hosts import scripted

NAME = "smoke"
_WORDS = ("run", NAME, "--host", "vm", "--dataset", "smoke", "--seed", "7", "--fresh", "never")
_TWO_TRIALS = ("--treatment", "cage=smoke", "--repeats", "1")
_VOLATILE = (
    *("run_id", "plan_sha256", "record_sha256", "attempt", "traces", "trace_files", "outer_host"),
    "harness",
)


def prepare(root: Path) -> None:
    """Make the simulated host: its spool, an agent's script, programs."""
    for folder in ("spool", "tmp", "programs"):
        (root / folder).mkdir()
    (root / "spool/script.json").write_text("{}")
    for name in ("pcread", "pcgen"):
        (root / "programs" / name).write_text("#!/bin/sh\n")


def arrange(root: Path) -> None:
    stay_in(root)
    with_small_analysis()
    replace_everywhere(
        "choose_host", lambda *_, **__: scripted(root / "spool/script.json", root / "spool")
    )
    replace_everywhere("make_agent_package", lambda top: _package(root, top))
    replace_everywhere("AGENT_EXIT_SECONDS", 0.5)
    replace_everywhere("harness", lambda: {"version": "0", "git_revision": None, "git_dirty": None})


def _package(root: Path, top: Path) -> AgentPackage:
    made = make_agent_package(top)
    return replace(made, programs=tuple(sorted((root / "programs").iterdir())))


def run(root: Path) -> int:
    arrange(root)
    return pagecage(root, *_WORDS, *_TWO_TRIALS)


def resume(root: Path) -> int:
    """Resume the run; start it anew if there is none that could be resumed."""
    arrange(root)
    status = pagecage(root, "run", NAME, "--host", "vm", "--resume")
    if status == EXIT_USAGE and not acknowledged(root):
        time.sleep(1)  # a run is named by its second
        status = pagecage(root, *_WORDS, *_TWO_TRIALS)
    return status


def newest(root: Path) -> RunFolder | None:
    """Return the newest run, or None."""
    path = root / "runs" / f"latest-{NAME}"
    return RunFolder(path.resolve()) if path.exists() else None


def records_of(root: Path) -> list[tuple[Path, Record]]:
    found = []
    for path in sorted((root / "runs").glob("*/records.jsonl")):
        if not path.parent.is_symlink():
            found += [(path, record) for record in RunFolder(path.parent).records()]
    return found


def comparable(record: Record) -> str:
    """Return a record without what differs between executions."""
    data = {k: v for k, v in record_to_json(record).items() if k not in _VOLATILE}
    return json.dumps(data, sort_keys=True)


def result(root: Path) -> dict[str, str]:
    """Return the final records of the newest run by trial."""
    folder = newest(root)
    assert folder is not None
    return {r.trial_id: comparable(r) for r in folder.records() if r.is_final}


def acknowledged(root: Path) -> dict[str, str]:
    """Return the final records that the files have, by run and trial."""
    return {
        f"{path.parent.name} {record.trial_id}": comparable(record)
        for path, record in records_of(root)
        if record.is_final
    }


def wrongly_counted(
    before: dict[str, str], now: dict[str, str], records: Sequence[tuple[object, Record]]
) -> Iterator[str]:
    """Yield acknowledged records that changed, and trials and attempts with two records."""
    for key, record in before.items():
        if now.get(key) != record:
            yield f"the record of {key} was lost or changed"
    finals = Counter((where, r.trial_id) for where, r in records if r.is_final)
    attempts = Counter((where, r.trial_id, r.attempt) for where, r in records)
    for what, count in [*finals.items(), *attempts.items()]:
        if count > 1:
            yield f"{what[1]} was counted {count} times"


def wrong(root: Path, before: dict[str, str], expected: dict[str, str]) -> Iterator[str]:
    """Yield what is wrong with the records after the next start."""
    yield from wrongly_counted(before, acknowledged(root), records_of(root))
    if (found := result(root)) != expected:
        changed = [key for key in expected if found.get(key) != expected[key]]
        yield f"the results differ from an unharmed execution's: {changed or sorted(found)}"
    yield from _wrong_traces(root)
    for path in (root / "runs").glob("[!.]*-smoke-vm"):
        with suppress(PagecageError):
            RunFolder(path).plan()
            continue
        yield f"{path.name} has no plan"


def _wrong_traces(root: Path) -> Iterator[str]:
    for path, record in records_of(root):
        for name, trace in record.traces.items():
            with suppress(OSError):
                if hashlib.sha256((path.parent / trace).read_bytes()).digest() == _TRACE:
                    continue
            yield f"{record.trial_id}'s trace {name} is damaged"


_TRACE = hashlib.sha256(b'{"t": 1.0}\n' * 3).digest()


def role(pid: int) -> str | None:
    """Return the role of a process: the controller is `main`."""
    return own_role(pid) or ("agent" if "scripted_agent" in command_line(pid) else None)


def faults(point: Point) -> Iterator[str]:
    """Yield the faults of a point; an agent or ansible-playbook can only end, or answer no more."""
    if point.role == "main":
        yield from faults_at(point)
    elif point.is_stream and point.call == "write":
        yield from (KILLED, TORN, NO_ANSWER)


def prepare_resumed(root: Path) -> None:
    """Make a run whose first trial has a result and whose second was interrupted."""
    from reliability.faults.supervisor import Clock, Supervisor

    prepare(root)
    outcome = Supervisor(root, Clock()).execute(lambda: run(root), role)
    assert outcome.status == EXIT_OK, (root / "told").read_text()
    folder = newest(root)
    assert folder is not None
    first, second = folder.records()
    folder.records_path.unlink()
    folder.append(first)
    folder.append(replace(second, outcome="interrupted", traces={}))


_EXTRA = (
    r"runs/N-smoke-vm(/plan\.json|/facts|/trials)?",  # planned, and killed before it was begun
    r"runs/N-smoke-vm/trials/[^/]*\.N?\d*",
    r"runs/N-smoke-vm/trials/[^/]*/sampler\.jsonl",
    r"runs/N-smoke-vm/facts/[^.]*\.json",
    r"log(/.*)?",
    r"tmp/[a-z0-9_N]+",  # Python's own check whether a folder can be used for temporary files
)
RUN = Scenario("run", prepare, run, resume, result, acknowledged, wrong, role, faults, _EXTRA)
RESUME = Scenario(
    "resume", prepare_resumed, resume, resume, result, acknowledged, wrong, role, faults, _EXTRA
)
