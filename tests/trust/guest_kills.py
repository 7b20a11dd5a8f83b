"""Random SIGKILLs on the real guest: of the controller, of the agent in the guest, and of QEMU.

`python -m tests.trust.guest_kills [SEED [SECONDS]]` kills and resumes one run until SECONDS are
over, lets it finish, checks it, and adds the result to docs/trust/guest-kills.json.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pagecage.hosts.ssh import ssh_argv
from pagecage.hosts.vm.cache import GuestCache
from pagecage.hosts.vm.guest import running_target
from pagecage.hosts.vm.qemu import sockets_dir
from pagecage.hosts.vm.running_guest import RunningGuest, read_guest
from pagecage.model.record import Record
from pagecage.process import Process, is_alive, run, spawn
from pagecage.runner.run_folder import RunFolder
from tests.tree import ROOT

RESULTS = ROOT / "docs/trust/guest-kills.json"
TARGETS = ("controller", "agent", "QEMU")
TRIALS = 3
_NEW = (
    *("run", "smoke", "--host", "vm", "--size", "smoke", "--seed", "7", "--fresh", "never"),
    *("--treatment", "cage=smoke", "--treatment", "pattern=sequential", "--repeats", str(TRIALS)),
)
_RESUMED = ("run", "smoke", "--host", "vm", "--resume")
_LONGEST_START_SECONDS, _LONGEST_DELAY_SECONDS = 90.0, 20.0
_KILL_AGENT = "found=$(pgrep -f '[a]gent.pyz') && kill -KILL $found"


@dataclass
class Session:
    """The kills of one run, each with its target and the records that were finished before.

    `wrong` lists what did not hold after the last start, which was left alone.
    """

    seed: int
    kills: list[dict[str, Any]] = field(default_factory=list)
    trials: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Killer:
    """One run in a temporary folder, started again after each kill."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._random = folder, random.Random(seed)
        self._process: Process[bytes] | None = None
        self.session = Session(seed)

    def kill_for(self, seconds: float) -> None:
        """Kill and resume until the time is over, then let the run finish, and check it."""
        began = time.monotonic()
        while time.monotonic() - began < seconds and self._kill_once():
            pass
        if self._process is not None:
            self._process.kill()
            self._end_of(self._process, read_guest(GuestCache.of_user()))
        before = self._final()
        status, told = self._finish()
        if status != 0:
            self.session.wrong.append(f"the last start ended with status {status}: {told[-300:]}")
        self.session.wrong += self._lost(before)
        self.session.wrong += self._wrong_in_the_end()
        self.session.trials = len(self._final())
        self.session.seconds = round(time.monotonic() - began, 1)

    def _start(self) -> Process[bytes]:
        has_run = (self._folder / "runs/latest-smoke").exists()
        argv = [sys.executable, "-m", "pagecage.cli.main", *(_RESUMED if has_run else _NEW)]
        env = {"PAGECAGE_RUNS": str(self._folder / "runs"), "PYTHONPATH": str(ROOT)}
        told = (self._folder / "told").open("ab")
        return spawn(argv, stdout=told, stderr=told, env=env, cwd=ROOT)

    def _kill_once(self) -> bool:
        """Kill a part of the run, started if it does not run; return False if all is done."""
        before, target = self._final(), self._random.choice(TARGETS)
        if self._process is None or self._process.poll() is not None:
            if len(before) == TRIALS:
                return False
            self._process = self._start()
        process = self._process
        if target != "controller" or self._random.random() < 0.7:
            self._wait_for_guest(process)
        delay = self._random.uniform(0, _LONGEST_DELAY_SECONDS)
        until = time.monotonic() + delay
        while time.monotonic() < until and process.poll() is None:
            time.sleep(0.02)
        guest = read_guest(GuestCache.of_user())
        if process.poll() is not None:
            return True
        is_killed = _kill(target, process, guest)
        self._note(target, delay, is_killed)
        if target == "controller":
            self._end_of(process, guest)
        elif target == "QEMU" and guest is not None:
            self._wait_for_another(process, guest)
        self.session.wrong += self._lost(before)
        return True

    def _note(self, target: str, delay: float, is_killed: bool) -> None:
        kill = {"target": target, "after_seconds": round(delay, 2), "finished": len(self._final())}
        if is_killed:
            self.session.kills.append(kill)
        sys.stderr.write(f"{json.dumps(kill)} {'' if is_killed else 'was not there'}\n")

    def _wait_for_guest(self, process: Process[bytes]) -> None:
        until = time.monotonic() + _LONGEST_START_SECONDS
        while process.poll() is None and time.monotonic() < until:
            if read_guest(GuestCache.of_user()) is not None:
                return
            time.sleep(0.05)

    def _wait_for_another(self, process: Process[bytes], guest: RunningGuest) -> None:
        until = time.monotonic() + _LONGEST_START_SECONDS
        while process.poll() is None and time.monotonic() < until:
            if (now := read_guest(GuestCache.of_user())) is not None and now.pid != guest.pid:
                return
            time.sleep(0.05)

    def _end_of(self, process: Process[bytes], guest: RunningGuest | None) -> None:
        """Wait for the end of the killed controller, and of QEMU, which must end with it."""
        process.wait()
        until = time.monotonic() + 20
        while guest is not None and is_alive(guest.process_id):
            if time.monotonic() > until:
                self.session.wrong.append("QEMU outlived the controller")
                return
            time.sleep(0.05)

    def _finish(self) -> tuple[int, str]:
        process = self._start()
        status = process.wait()
        return status, (self._folder / "told").read_text(errors="replace")

    def _records(self) -> list[Record]:
        path = self._folder / "runs/latest-smoke"
        return RunFolder(path.resolve()).records() if path.exists() else []

    def _final(self) -> dict[str, Record]:
        return {one.trial_id: one for one in self._records() if one.is_final}

    def _lost(self, before: dict[str, Record]) -> Iterator[str]:
        now = self._final()
        for trial_id, record in before.items():
            if now.get(trial_id) != record:
                yield f"the record of {trial_id} was lost or changed"

    def _wrong_in_the_end(self) -> Iterator[str]:
        finals = [record for record in self._records() if record.is_final]
        if sorted({one.repeat for one in finals}) != list(range(1, TRIALS + 1)):
            yield f"{len(finals)} trials have a result"
        if len(finals) != len({one.trial_id for one in finals}):
            yield "a trial was counted twice"
        yield from (f"{one.trial_id}: {one.outcome}" for one in finals if one.outcome != "ok")
        cache = GuestCache.of_user()
        left = (sockets_dir(cache), cache.guest_file, *cache.scratch.glob("vl.*"))
        yield from (f"left behind: {path.name}" for path in left if path.exists())
        parts = [*cache.root.rglob("*.part"), *(self._folder / "runs").rglob("*.part")]
        yield from (f"left behind: {path.name}" for path in parts)


def _kill(target: str, process: Process[bytes], guest: RunningGuest | None) -> bool:
    """Kill one part of a run; return whether it was there."""
    if target == "controller":
        process.kill()
        return True
    if guest is None:
        return False
    if target == "QEMU":
        os.kill(guest.pid, signal.SIGKILL)
        return True
    return _kill_agent()


def _kill_agent() -> bool:
    """Kill the agent inside the guest, through the connection that the run has."""
    target = running_target()
    if target is None or target.control_path is None or not target.control_path.exists():
        return False
    return run(ssh_argv(target, ["sh", "-c", _KILL_AGENT]), check=False, timeout_seconds=60).ok


def main(seed: int = 20261123, seconds: float = 200.0) -> None:
    """Carry out one session and add its result."""
    with tempfile.TemporaryDirectory() as folder:
        killer = Killer(Path(folder), seed)
        killer.kill_for(seconds)
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"sessions": []}
    stored["sessions"].append(asdict(killer.session))
    RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
    sys.stderr.write(f"{len(killer.session.kills)} kills, wrong: {killer.session.wrong}\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
