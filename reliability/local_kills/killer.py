"""SIGKILLs at random moments of a run on this machine, and what the last start does."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pagecage.errors import EXIT_OK, HostError
from pagecage.hosts.local import require_idle
from pagecage.linux.processes import children, tree
from pagecage.process import Process, TimeoutExpired
from reliability.guest_kills.killer import CONTROLLER, Kill, KilledCommand
from reliability.guest_kills.leftovers import State
from reliability.local_kills.place import SPOOL, TRIALS, VARIANTS, data_dir, state

AGENT, WORKLOAD, TOOL = "agent", "workload", "tool"
TARGETS = (CONTROLLER, AGENT, AGENT, WORKLOAD, WORKLOAD, TOOL)
FEWEST_KILLS, MOST_KILLS = 8, 60
_AFTER_FIRST_RESULT = 0.8
_LONGEST_DELAYS = {CONTROLLER: 4.0, AGENT: 1.5, WORKLOAD: 0.15, TOOL: 0.3}
_ENDING_SECONDS, _POLL_SECONDS = 60.0, 0.01
_REPORTED = re.compile(r"^ +\d+/\d+ (\S+) +ok ", re.MULTILINE)


@dataclass(frozen=True)
class KilledLocally:
    """A run with kills, and their consequences.

    `missed` counts the kills whose target was not there before the run ended. `status` is the exit
    status of the start that was killed last, `next_status` that of the last start.
    """

    number: int
    experiment: str
    kills: tuple[Kill, ...]
    missed: int
    starts: int
    status: int | None
    next_status: int | None
    seconds: float
    wrong: tuple[str, ...]


class LocalRun(KilledCommand):
    """A run of one of the project's experiments."""

    trials = TRIALS

    def __init__(self, folder: Path, experiment: str) -> None:
        super().__init__(folder)
        self.experiment, self.directory, self.starts = experiment, folder, 0
        words = ("run", experiment, "--host", "local")
        place = ("--data-dir", str(data_dir(folder)), "--yes")
        self.new = (*words, "--size", "smoke", "--seed", "7", *place)
        self.resumed = (*words, "--resume", *place)
        shutil.rmtree(folder / "runs", ignore_errors=True)
        (folder / "told").unlink(missing_ok=True)

    def start(self) -> Process[bytes]:
        """Start or resume the run, once the agent of an earlier start has had time to end."""
        until = time.monotonic() + _ENDING_SECONDS
        while _is_locked() and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        self.starts += 1
        return super().start()

    def wrong_records(self) -> Iterator[str]:
        """Yield what is wrong with the records after the last start."""
        yield from super().wrong_records()
        attempts = Counter((one.trial_id, one.attempt) for one in self._records())
        yield from (f"attempt {one} has {n} records" for one, n in attempts.items() if n > 1)
        reported = _REPORTED.findall((self.folder / "told").read_text(errors="replace"))
        lost = set(reported) - set(self.finals())
        yield from (f"the result of {one} was reported and is not stored" for one in lost)


def _is_locked() -> bool:
    try:
        require_idle(SPOOL)
    except HostError:
        return True
    return False


@dataclass(frozen=True)
class Unharmed:
    """A run without a kill: its duration, and the state that it leaves."""

    seconds: float
    state: State


def run_unharmed(folder: Path, experiment: str) -> Unharmed:
    """Return an unharmed run. Raises RuntimeError if it fails."""
    unharmed = LocalRun(folder, experiment)
    status, wrong = unharmed.end_of(unharmed.start()), list(unharmed.wrong_records())
    if status != EXIT_OK or wrong:
        raise RuntimeError(f"the unharmed run ended with {status}: {wrong} {unharmed.told()}")
    return Unharmed(unharmed.seconds(), state(folder))


def kill_run(
    number: int, seed: int, folder: Path, unharmed: Mapping[str, Unharmed]
) -> KilledLocally:
    """Kill parts of a run at random moments, and let its last start end."""
    chooser = random.Random(f"{seed} {number}")
    experiment = chooser.choices(list(VARIANTS), (3, 1))[0]
    killed, kills, wrong, missed = LocalRun(folder, experiment), list[Kill](), list[str](), 0
    process = killed.start()
    for _ in range(chooser.randint(FEWEST_KILLS, MOST_KILLS)):
        if process.poll() is not None:
            if len(killed.finals()) == TRIALS:
                break
            process = killed.start()
        kill, lost = _one_kill(chooser, killed, process)
        wrong += lost
        kills += [kill] if kill else []
        missed += kill is None
    status = next_status = killed.end_of(process)
    if status != EXIT_OK:
        next_status = killed.end_of(killed.start())
    if next_status != EXIT_OK:
        wrong.append(f"the last start ended with status {next_status}: {killed.told()}")
    wrong += killed.wrong_records()
    wrong += [f"left: {one}" for one in state(folder) - unharmed[experiment].state]
    wrong += [f"missing: {one}" for one in unharmed[experiment].state - state(folder)]
    ends = (status, next_status, round(killed.seconds(), 1), tuple(dict.fromkeys(wrong)))
    return KilledLocally(number, experiment, tuple(kills), missed, killed.starts, *ends)


def _one_kill(
    chooser: random.Random, killed: LocalRun, process: Process[bytes]
) -> tuple[Kill | None, list[str]]:
    """Kill one part of a run. Return the kill, None if it was not met, and what was lost."""
    began, target = time.monotonic(), chooser.choice(TARGETS)
    waits_for_result = chooser.random() < _AFTER_FIRST_RESULT
    delay = chooser.uniform(0, _LONGEST_DELAYS[target])
    while waits_for_result and process.poll() is None and not killed.finals():
        time.sleep(5 * _POLL_SECONDS)
    if target in (WORKLOAD, TOOL):
        _find(target, process)
    with suppress(TimeoutExpired):
        process.wait(delay)
    before = killed.finals()
    pid = _find(target, process)
    if pid is None:
        return None, []
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    if target == CONTROLLER:
        process.wait()
    kill = Kill(target, round(time.monotonic() - began, 2), len(before))
    return kill, list(killed.lost(before))


def _find(target: str, process: Process[bytes]) -> int | None:
    """Return the process id of a part as soon as it is there; None if the run ends before."""
    while process.poll() is None:
        if target == CONTROLLER:
            return process.pid
        for agent in children(process.pid):
            if "agent.pyz" not in _command_line(agent):
                continue
            if target == AGENT:
                return agent
            for pid in list(tree(agent))[1:]:
                if ("/bin/pcread" in _command_line(pid)) == (target == WORKLOAD):
                    return pid
        time.sleep(_POLL_SECONDS / 2)
    return None


def _command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""
