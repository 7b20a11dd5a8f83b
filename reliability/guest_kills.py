"""Random SIGKILLs on the real guest: `python -m reliability.guest_kills [OPTION ...]`.

Each kill ends the controller, the agent in the guest, or QEMU, at a random moment of a run of four
trials, up to 16 times for a run. The last start is left alone, and must finish. `--guest kept`
uses a guest that `pagecage host up vm` started, which is looked through afterwards; `--guest own`
one that the run starts itself. No other process may use the guest meanwhile; with another
XDG_CACHE_HOME the campaign has one of its own. The results are added to
docs/trust/guest-kills.json; the seed and the number of a run choose its kills.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagecage.errors import EXIT_OK, PagecageError
from pagecage.hosts.ssh import SshTarget, ssh_argv
from pagecage.hosts.vm.cache import GuestCache, is_held
from pagecage.hosts.vm.guest import down, running_target, up
from pagecage.hosts.vm.guest_client import read_guest
from pagecage.hosts.vm.qemu import sockets_dir
from pagecage.model.record import Record
from pagecage.process import Process, run, spawn
from pagecage.report.model import markdown_table
from pagecage.runner.run_folder import RunFolder
from reliability import guest_state
from reliability.campaign import arguments, kill_runs, read_results, tell
from tests.builders.command_line import pagecage_argv
from tests.tree import ROOT

_CHANGING = ("qemu.log", "console.log", "provision.log")
State = Counter[str]


def state_in_guest(target: SshTarget) -> State:
    """Return the state of the guest. Raises PagecageError if it does not answer."""
    program = Path(guest_state.__file__).read_text()
    done = run(ssh_argv(target, ["python3", "-c", program]), timeout_seconds=90)
    return Counter(json.loads(done.stdout))


def state_outside(cache: GuestCache, folder: Path) -> State:
    """Return what the controller's machine has for the guest and for the run in `folder`."""
    return Counter((*_files(cache), *_processes(folder), *parts_of(folder, folder / "runs")))


def _files(cache: GuestCache) -> Iterator[str]:
    if is_held(cache.lock_file):
        yield "lock of the guest"
    sockets = sockets_dir(cache)
    for path in (cache.guest_file, *sockets.glob("*"), *cache.scratch.glob("*")):
        if path.exists() and path.name not in _CHANGING:
            yield f"file {path.name}"
    yield from (f"file {path.name}" for path in cache.root.rglob("*.part"))


def parts_of(folder: Path, runs: Path) -> Iterator[str]:
    """Yield the files below a folder that nobody finished, and what is hidden among the runs."""
    yield from (f"file {path.name}" for path in folder.rglob("*.part*"))
    yield from (f"file {path.name}" for path in runs.glob(".*"))


def _processes(folder: Path) -> Iterator[str]:
    mark = f"PAGECAGE_RUNS={folder}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "environ").read_bytes().split(b"\0")
            name = (path / "comm").read_text().strip()
        except OSError:
            continue
        if any(word.startswith(mark) for word in words) and int(path.name) != os.getpid():
            yield f"process {name}"


CONTROLLER, AGENT, QEMU = "controller", "agent", "QEMU"
TRIALS, MOST_KILLS = 4, 16
_NEW = (
    *("run", "smoke", "--host", "vm", "--dataset", "smoke", "--seed", "7", "--fresh", "never"),
    *("--treatment", "cage=smoke", "--treatment", "pattern=sequential", "--repeats", str(TRIALS)),
)
_RESUMED = ("run", "smoke", "--host", "vm", "--resume")
_LONGEST_RUN_SECONDS, _ENDING_SECONDS = 240.0, 20.0
_KILL_AGENT = "found=$(pgrep -f '[a]gent.pyz') && kill -KILL $found"


@dataclass(frozen=True)
class Kill:
    """A SIGKILL. `finished` is the number of trials that had a result before it."""

    target: str
    after_seconds: float
    finished: int


@dataclass(frozen=True)
class KilledRun:
    """A run with kills, and their consequences.

    `status` is the exit status of the start that was killed last, `next_status` that of the last
    start, which was left alone. They are equal if that was one start.
    """

    number: int
    guest: str
    kills: tuple[Kill, ...]
    status: int | None
    next_status: int | None
    seconds: float
    wrong: tuple[str, ...]


@dataclass(frozen=True)
class Unharmed:
    """A run without a kill: its duration, and the state that it leaves in the guest and outside.

    `inside` is None for a guest that ends with its run.
    """

    seconds: float
    inside: State | None
    outside: State


class KilledCommand:
    """A run in a folder, by its command and the one that resumes it."""

    experiment = "smoke"
    trials = TRIALS
    new: tuple[str, ...] = _NEW
    resumed: tuple[str, ...] = _RESUMED
    directory = ROOT

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._began = time.monotonic()

    @property
    def run_path(self) -> Path:
        """The link to the run's folder, which exists once there is a run."""
        return self.folder / f"runs/latest-{self.experiment}"

    def start(self) -> Process[bytes]:
        argv = pagecage_argv(*(self.resumed if self.run_path.exists() else self.new))
        env = {"PAGECAGE_RUNS": str(self.folder / "runs"), "PYTHONPATH": str(ROOT)}
        with (self.folder / "told").open("ab") as told:
            return spawn(argv, stdout=told, stderr=told, env=env, cwd=self.directory)

    def end_of(self, process: Process[bytes]) -> int | None:
        """Wait for a run; return its exit status, None for one that had to be ended."""
        with suppress(TimeoutError):
            return _wait(process, _LONGEST_RUN_SECONDS)
        process.kill()
        process.wait()
        return None

    def finish(self, process: Process[bytes]) -> tuple[int | None, int | None]:
        """Wait for a run, and start it once more if it failed; return both exit statuses."""
        status = self.end_of(process)
        return status, status if status == EXIT_OK else self.end_of(self.start())

    def run_unharmed(self) -> None:
        """Run to the end without a kill. Raises RuntimeError if that fails."""
        status, wrong = self.end_of(self.start()), list(self.wrong_records())
        if status != EXIT_OK or wrong:
            raise RuntimeError(f"the unharmed run ended with {status}: {wrong} {self.told()}")

    def told(self) -> str:
        return (self.folder / "told").read_text(errors="replace")[-400:]

    def seconds(self) -> float:
        """Return the seconds since the first start."""
        return time.monotonic() - self._began

    def finals(self) -> dict[str, Record]:
        return {one.trial_id: one for one in self._records() if one.is_final}

    def _records(self) -> list[Record]:
        path = self.run_path
        return RunFolder(path.resolve()).records() if path.exists() else []

    def lost(self, before: dict[str, Record]) -> Iterator[str]:
        """Yield the results that are no longer stored as they were."""
        now = self.finals()
        for trial_id, record in before.items():
            if now.get(trial_id) != record:
                yield f"the record of {trial_id} was lost or changed"

    def wrong_records(self) -> Iterator[str]:
        """Yield what is wrong with the results after the last start."""
        finals = [record for record in self._records() if record.is_final]
        if sorted(one.repeat for one in finals) != list(range(1, self.trials + 1)):
            yield f"repeats {sorted(one.repeat for one in finals)} have a result"
        yield from (f"{one.trial_id}: {one.outcome}" for one in finals if one.outcome != "ok")


class GuestRun(KilledCommand):
    """A run in the guest, in a temporary folder."""

    def __init__(self, folder: Path, cache: GuestCache) -> None:
        super().__init__(folder)
        self._cache = cache

    def states(self) -> tuple[State | None, State]:
        """Return the state of a guest that still runs, and that outside."""
        target = running_target(self._cache)
        return state_in_guest(target) if target else None, state_outside(self._cache, self.folder)


def _wait(process: Process[bytes], seconds: float) -> int:
    until = time.monotonic() + seconds
    while (status := process.poll()) is None:
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.05)
    return status


def run_unharmed(cache: GuestCache) -> Unharmed:
    """Return an unharmed run. Raises RuntimeError if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        unharmed = GuestRun(Path(folder), cache)
        unharmed.run_unharmed()
        return Unharmed(round(unharmed.seconds(), 1), *unharmed.states())


def kill_run(
    number: int, seed: int, guest: str, targets: tuple[str, ...], unharmed: Unharmed
) -> KilledRun:
    """Kill parts of a run at random moments; no part may have been there in time."""
    chooser, cache = random.Random(f"{seed} {number}"), GuestCache.of_user()
    with tempfile.TemporaryDirectory() as folder:
        killed = GuestRun(Path(folder), cache)
        process, kills, wrong = killed.start(), list[Kill](), list[str]()
        for _ in range(chooser.randint(1, MOST_KILLS)):
            target, delay = chooser.choice(targets), chooser.uniform(0, unharmed.seconds / 2)
            if process.poll() is not None and len(killed.finals()) < TRIALS:
                process = killed.start()
            before = killed.finals()
            after = _kill_after(delay, target, process, cache)
            if after is not None:
                kills.append(Kill(target, round(after, 1), len(before)))
            if target == CONTROLLER and after is not None:
                killed.end_of(process)
                wrong += _outliving(cache) if guest == "own" else ()
            wrong += killed.lost(before)
        status, next_status = killed.finish(process)
        wrong += _wrong(killed, next_status, unharmed)
        ends = (status, next_status, round(killed.seconds(), 1), tuple(dict.fromkeys(wrong)))
        return KilledRun(number, guest, tuple(kills), *ends)


def _kill_after(
    delay: float, target: str, process: Process[bytes], cache: GuestCache
) -> float | None:
    """Kill a part of a run; return after how many seconds, or None if it was not there."""
    began = time.monotonic()
    with suppress(TimeoutError):
        _wait(process, delay)
    after = time.monotonic() - began
    return after if _kill(target, process, cache) else None


def _wrong(killed: GuestRun, status: int | None, unharmed: Unharmed) -> Iterator[str]:
    if status != EXIT_OK:
        yield f"the last start ended with status {status}: {killed.told()}"
    yield from killed.wrong_records()
    try:
        inside, outside = killed.states()
    except PagecageError as error:
        yield f"a guest is left that does not answer: {error.message}"
        return
    yield from (f"left outside: {one}" for one in outside - unharmed.outside)
    if inside is None:
        return
    if unharmed.inside is None:
        yield "the guest that the run started still runs"
    else:
        yield from (f"left in the guest: {one}" for one in inside - unharmed.inside)


def _outliving(cache: GuestCache) -> Iterator[str]:
    until = time.monotonic() + _ENDING_SECONDS
    while read_guest(cache) is not None:
        if time.monotonic() > until:
            yield "QEMU outlived the controller"
            return
        time.sleep(0.05)


def _kill(target: str, process: Process[bytes], cache: GuestCache) -> bool:
    """Kill a part of a run as soon as it is there; return False if the run ends before."""
    while process.poll() is None:
        if target == CONTROLLER:
            process.kill()
            return True
        guest = read_guest(cache)
        if guest is not None and target == QEMU:
            os.kill(guest.pid, signal.SIGKILL)
            return True
        if guest is not None and target == AGENT and _kill_agent(cache):
            return True
        time.sleep(0.05)
    return False


def _kill_agent(cache: GuestCache) -> bool:
    target = running_target(cache)
    if target is None or target.control_path is None or not target.control_path.exists():
        return False
    with suppress(PagecageError):
        argv = ssh_argv(target, ["sh", "-c", _KILL_AGENT])
        return run(argv, check=False, timeout_seconds=60).ok
    return False


Run = Mapping[str, Any]
_PLACES = {
    "local-kills.json": "a real CPU, limits by cgroup files",
    "guest-kills.json": "the emulated guest",
}
_METHOD = """Each run receives up to {most} SIGKILLs at random moments. `--resume` restarts a killed
controller. After a kill of its agent or of QEMU, a run continues automatically. The last start
receives no kill. It must finish with every reported result, and no result may be lost, duplicated
or changed. A run may leave no process, cgroup, mount, socket, lock, unit, setting or file that a
run without kills does not leave.
"""
_HEAD = ["where", "killed", "kills", "before the first result", "after it", "not met"]


def kills_section(results: Path) -> Iterator[str]:
    by_place = _by_place(results)
    if not by_place:
        return
    runs = [run for found in by_place.values() for run in found]
    yield "## Kills\n"
    yield _METHOD.format(most=max(len(run["kills"]) for run in runs))
    kills, wrong = killed(results)
    finished = [kill["finished"] for run in runs for kill in run["kills"]]
    yield (
        f"{kills:,} kills in {len(runs)} runs, {len(finished) - finished.count(0):,} of them after"
        f" the first result. **{wrong} of {len(runs)} runs had a forbidden consequence.** A kill"
        " is *not met* if its target has already exited. A run counts even if no kill reached it."
        " `tests/vm/test_fleet.py` kills the guests of a fleet.\n"
    )
    rows = (row for place, found in by_place.items() for row in _rows(place, found))
    yield markdown_table(_HEAD, rows)
    stored = read_results(results / "guest-kills.json", {"tries": 0, "runs": []})
    if (dropped := stored.get("tries", 0) - len(stored["runs"])) > 0:
        yield (
            f"{dropped} of {stored['tries']} runs in the guest are not stored: no kill met them,"
            " and such runs did not count before.\n"
        )
    for found in runs:
        for one in found.get("wrong_before", ()):
            yield f"- run {found['number']} was repeated, because of this before: {one}\n"
        yield from (f"- **still wrong**, run {found['number']}: {one}\n" for one in found["wrong"])


def killed(results: Path) -> tuple[int, int]:
    """Return the number of kills, and of runs with a consequence that must not be."""
    runs = [run for found in _by_place(results).values() for run in found]
    return sum(len(run["kills"]) for run in runs), sum(bool(run["wrong"]) for run in runs)


def _by_place(results: Path) -> dict[str, list[Run]]:
    stored = {place: read_results(results / name) for name, place in _PLACES.items()}
    return {place: found["runs"] for place, found in stored.items() if found}


def _rows(place: str, runs: Sequence[Run]) -> Iterator[list[str]]:
    kills = [kill for run in runs for kill in run["kills"]]
    missed = sum(run.get("missed", 0) for run in runs)
    for target in sorted({kill["target"] for kill in kills}):
        found = [kill["finished"] for kill in kills if kill["target"] == target]
        counts = (len(found), found.count(0), len(found) - found.count(0))
        yield [place, target, *map(str, counts), ""]
    yield [place, "all", *(str(one) for one in _sums(kills)), str(missed)]


def _sums(kills: Sequence[Mapping[str, Any]]) -> tuple[int, int, int]:
    before = sum(not kill["finished"] for kill in kills)
    return len(kills), before, len(kills) - before


SEED = 20261123
TARGETS = {"kept": (CONTROLLER, AGENT), "own": (CONTROLLER, AGENT, QEMU)}


def main(words: Sequence[str] | None = None) -> int:
    """Kill until the time is over; return 1 if a kill had a consequence that must not be."""
    parser = arguments("guest_kills")
    parser.add_argument("--guest", choices=list(TARGETS), default="kept")
    parser.add_argument("--seconds", type=float, default=1800.0)
    asked = parser.parse_args(words)
    until, is_kept = time.monotonic() + asked.seconds, asked.guest == "kept"
    if is_kept:
        up(tell)
    try:
        run_unharmed(GuestCache.of_user())  # it may save a machine state, for which no later waits
        unharmed = run_unharmed(GuestCache.of_user())
        return kill_runs(
            asked.results / "guest-kills.json",
            SEED,
            lambda number: kill_run(number, SEED, asked.guest, TARGETS[asked.guest], unharmed),
            until - 3 * unharmed.seconds,
        )
    finally:
        if is_kept:
            down(tell)


if __name__ == "__main__":
    sys.exit(main())
