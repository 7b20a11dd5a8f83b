"""The program that makes a trial's data, and the key under which the data are kept."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from pagecage.agent.own_programs import programs_folder
from pagecage.agent.programs.arguments import fill, fill_all, program_path
from pagecage.agent.programs.observation import describe_status
from pagecage.agent.programs.stderr_tail import StderrTail
from pagecage.agent.system.process_tree import MARKER, kill_marked, leaves_marked
from pagecage.agent.trial_run import NotPrepared, RequirementMissed, TrialRun
from pagecage.model.requirements import Requirement
from pagecage.model.trial_data import TrialData
from pagecage.process import PIPE, STDOUT, Process, TimeoutExpired
from pagecage.units import format_seconds

_KEY_CHARACTERS = 16
_TOLD_EVERY_SECONDS = 30.0
_CHILDREN_SECONDS = 0.5  # for the children of a program that has ended to end as well
_READ_BYTES = 65536


def key_of(run: TrialRun, data: TrialData) -> str:
    """Return the key of the data: over the command, its programs, its datasets and the seed.

    Raises RequirementMissed for a program that this host lacks.
    """
    parts = {
        "prepare": data.prepare,
        "programs": list(_identities(run, data)),
        "datasets": [one.file_name for one in run.trial.datasets] if data.reads_datasets else [],
        "seed": data.seed,
        "writes": data.writes,
    }
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_CHARACTERS]


def _identities(run: TrialRun, data: TrialData) -> Iterator[tuple[str, str]]:
    """Yield the programs that make the data with the hashes of their files.

    They are the command, the definition's own programs among its words, and those of `made_by`,
    which the command is known to call.
    """
    folder, words = programs_folder(run.session.request), (*data.prepare, *data.made_by)
    for name, text in sorted(run.session.request.own_programs.items()):
        if any(f"{{programs}}/{name}" in word for word in words):
            yield name, hashlib.sha256(text.encode()).hexdigest()
    for word in (_program(run, data), *data.made_by):
        for path in _find_programs(fill(word, {"programs": folder})):
            with path.open("rb") as file:
                yield Path(word).name, hashlib.file_digest(file, "sha256").hexdigest()


def _program(run: TrialRun, data: TrialData) -> str:
    """Return the program that makes the data: a workload of pagecage's own, or any other."""
    workload = program_path(run.session.request, data.prepare[0])
    return workload if Path(workload).is_file() else data.prepare[0]


def _find_programs(word: str) -> list[Path]:
    """Return the files of a program; a pattern of an absolute path may match several."""
    if word.startswith("/") and "*" in word:
        found = sorted(Path("/").glob(word[1:]))
    else:
        found = [Path(path) for path in [shutil.which(word)] if path]
    if not found:
        raise RequirementMissed.of(
            Requirement.WORKLOAD,
            f"there is no program {word!r}, which makes the data",
            "install it on the host",
        )
    return found


def make_data(run: TrialRun, data: TrialData, target: Path, datasets: Sequence[Path]) -> list[str]:
    """Run the program that fills the empty directory `target`; return its command.

    Raises NotPrepared with the last line of its output if it fails, takes too long, or leaves
    processes behind, which could go on writing.
    """
    values = {
        "data": target,
        "programs": programs_folder(run.session.request),
        "seed": data.seed,
        "file": datasets[0] if datasets else None,
        "data_dir": target.parent,
    }
    argv = fill_all([_program(run, data), *data.prepare[1:]], values, datasets)
    status, has_left, last_line = _make(run, argv, target, data.timeout_seconds)
    _require_success(Path(argv[0]).name, status, has_left, last_line, data)
    return argv


def _make(
    run: TrialRun, argv: Sequence[str], target: Path, timeout_seconds: float
) -> tuple[int | None, bool, str | None]:
    """Run the program in `target`, and end all that it started.

    Return its exit status, or None if the time was over; whether processes outlived it; and the
    last line of its output. An interruption waits for the start, which would otherwise be left
    behind if it came between fork(2) and the note of its process.
    """
    mark = f"{run.session.request.spool}:prepare"
    children, interruption, tail = run.session.children, run.session.interruption, StderrTail()
    process: Process[bytes] | None = None
    try:
        with interruption.held():
            process = children.start(
                argv, stdout=PIPE, stderr=STDOUT, env={MARKER: mark}, cwd=target
            )
        reader = threading.Thread(target=_read, args=(process.stdout, tail), daemon=True)
        reader.start()
        status = _wait(run, process, Path(argv[0]).name, timeout_seconds)
        has_left = leaves_marked(mark, _CHILDREN_SECONDS)
    finally:
        with interruption.held():
            if process is not None:
                children.interrupt(process)
            kill_marked(mark)
    reader.join(timeout=_CHILDREN_SECONDS)
    return status, has_left, tail.last_line()


def _read(output: IO[bytes] | None, tail: StderrTail) -> None:
    with suppress(OSError, ValueError):
        while output and (piece := os.read(output.fileno(), _READ_BYTES)):
            tail.add(piece)


def _wait(run: TrialRun, process: Process[bytes], name: str, timeout_seconds: float) -> int | None:
    """Return the exit status, and tell the time at intervals; None if the time is over."""
    began = time.monotonic()
    while (spent := time.monotonic() - began) < timeout_seconds:
        since = f", since {format_seconds(spent)}" if spent >= 1 else ""
        run.session.stream.event("step", text=f"{name} makes data{since}")
        with suppress(TimeoutExpired):
            return process.wait(min(_TOLD_EVERY_SECONDS, timeout_seconds - spent))
    return None


def _require_success(
    name: str, status: int | None, has_left: bool, last_line: str | None, data: TrialData
) -> None:
    ending = f": {last_line}" if last_line else ""
    if status is None:
        limit = format_seconds(data.timeout_seconds)
        raise NotPrepared(f"{name} had not made the data after {limit}{ending}")
    if status != 0:
        raise NotPrepared(f"{name}, which makes the data, ended {describe_status(status)}{ending}")
    if has_left:
        raise NotPrepared(
            f"{name}, which makes the data, ended while processes that it started lived on{ending}"
        )
