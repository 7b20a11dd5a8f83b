"""Random SIGKILLs on this machine: `python -m reliability.local_kills [OPTION ...]`.

Each kill ends the controller, the agent, the workload or a tool that records, at a random moment of
a run of 40 short trials, whose limits cgroup files hold. The last start is left alone, and must
finish. The campaign has its own processes, mounts, spool and disk, a file by loop, so that other
runs on this machine are not met. It needs root and `unshare`. The results are added to
docs/trust/local-kills.json; the seed and the number of a run choose its kills.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pagecage.errors import EXIT_OK, HostError
from pagecage.hosts.local import require_idle
from pagecage.linux.cgroupfs import Cgroupfs
from pagecage.linux.processes import children, tree
from pagecage.process import Process, TimeoutExpired, run
from reliability import guest_state
from reliability.campaign import arguments, folder_on_disk, kill_runs, repeat_run, run_isolated
from reliability.guest_kills import CONTROLLER, Kill, KilledCommand, State, parts_of

TRIALS = 40
SPOOL = Path("/dev/shm/pagecage")
VARIANTS = {
    "killable-memory": ('MemoryMax = "16MiB"', ["vmtouch"]),
    "killable-io": (
        'MemoryMax = "16MiB"\nIOReadBandwidthMax = "40MB"\nIOReadIOPSMax = 2000',
        ["iostat", "sar", "vmtouch"],
    ),
}
"""Limits and collectors by experiment. Limits on I/O are calibrated anew by each agent."""
_DISK_BYTES = 4 * 2**30
_EXPERIMENT = """question = "Does a run whose parts are killed lose, double or leave anything?"
repeats = {trials}
fresh = "never"
read_ahead_kb = 64
collectors = {collectors}
response = "full_pass_seconds"

[workload]
program = "pcread"
arguments = [
  "--file", "{{file}}", "--expect-sidecar", "{{sidecar}}", "--block-bytes", "4096",
  "--source", "mmap", "--max-seconds", "{{max_seconds}}",
]
min_memory_bytes = "2MiB"
{sizes}
[factors]
cage = ["{name}"]
pattern = ["sequential"]

[levels.pattern.sequential]
arguments = ["--pattern", "sequential"]
cache = "cold"
"""
_SIZE = '\n[sizes.{size}]\ndataset = "4MiB"\nmax_seconds = 5\n'


def make_project(folder: Path) -> None:
    sizes = "".join(_SIZE.format(size=size) for size in ("full", "default", "emulated", "smoke"))
    for name in ("experiments", "cgroups"):
        (folder / name).mkdir()
    (folder / "pagecage.toml").touch()
    for name, (limits, collectors) in VARIANTS.items():
        text = _EXPERIMENT.format(
            trials=TRIALS, collectors=json.dumps(collectors), sizes=sizes, name=name
        )
        (folder / f"experiments/{name}.toml").write_text(text)
        (folder / f"cgroups/{name}.toml").write_text(f'about = "Limits of kills."\n{limits}\n')


def data_dir(folder: Path) -> Path:
    """Return the data directory, on a disk of the campaign's own."""
    return folder / "data"


@contextmanager
def own_disk(folder: Path) -> Iterator[None]:
    """Mount a file by loop, whose queue settings no other run has."""
    image, place = folder / "disk.img", data_dir(folder)
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(_DISK_BYTES)
    run(["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", image])
    run(["mount", "-o", "loop", image, place])
    try:
        yield
    finally:
        run(["umount", place])


def state(folder: Path) -> State:
    """Return processes, mounts, cgroups, settings of the disk, and files that a run leaves."""
    place = data_dir(folder)
    seen = place.stat().st_dev
    own_groups = Cgroupfs(SPOOL).cgroup("").directories[0].name
    queue = Path(f"/sys/dev/block/{os.major(seen)}:{os.minor(seen)}/queue")
    return Counter(
        (
            *guest_state.processes(),
            # Loop devices are those of the whole machine, also of other campaigns in /dev/shm.
            *(line for line in guest_state.mounts() if str(folder) in line or str(SPOOL) in line),
            *(line for line in guest_state.cgroups() if own_groups in line),
            *(f"{name} {(queue / name).read_text()}" for name in ("read_ahead_kb", "scheduler")),
            *(f"file {path.relative_to(place)}" for path in place.rglob("*")),
            *_spool_files(),
            *parts_of(folder / "runs", folder / "runs"),
        )
    )


def _spool_files() -> Iterator[str]:
    for path in SPOOL.rglob("*"):
        if path.suffix != ".jsonl" and path.name != "cgroups.json":
            yield f"file {path}"
    try:
        notes = json.loads((SPOOL / "cgroups.json").read_text())
    except FileNotFoundError:
        return
    yield from (f"noted cgroup {group}" for group in notes["groups"])


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
        self.new = (*words, "--dataset", "smoke", "--seed", "7", *place)
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
    unharmed.run_unharmed()
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
    status, next_status = killed.finish(process)
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


SEED = 20261124


def main(words: Sequence[str] | None = None) -> int:
    """Kill until the time is over; return 1 if a kill had a consequence that must not be."""
    parser = arguments("local_kills", isolated=True)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--repeat", type=int, help="repeat the stored run of this number alone")
    asked = parser.parse_args(words)
    if not asked.inside:
        return run_isolated("local_kills", words)
    with folder_on_disk() as name, own_disk(Path(name)):
        folder = Path(name)
        os.environ |= {"XDG_STATE_HOME": name, "XDG_CACHE_HOME": name}
        make_project(folder)
        until = time.monotonic() + asked.seconds
        unharmed = {variant: run_unharmed(folder, variant) for variant in VARIANTS}
        path = asked.results / "local-kills.json"

        def kill(number: int) -> KilledLocally:
            return kill_run(number, SEED, folder, unharmed)

        if asked.repeat:
            return repeat_run(path, asked.repeat, kill)
        return kill_runs(path, SEED, kill, until, asked.kills)


if __name__ == "__main__":
    sys.exit(main())
