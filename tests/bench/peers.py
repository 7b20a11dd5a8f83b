"""The fixed cost of running nothing: a trial beside other programs that start a command in a cage.

Each starts /bin/true once. hyperfine measures time alone; systemd-run and docker set limits;
runexec of BenchExec sets limits, measures, and proves that no process is left. None of them proves
a limit or a cache state, which is most of what a trial does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from pagecage.model.needs.packages import Package
from pagecage.process import run
from tests.bench.bed import Bed, Figure, ratio_of_pairs, scratch, started
from tests.bench.session import Session
from tests.bench.trials import NOTHINGS, run_nothings, seconds_of_nothing

PACKAGES = tuple(Package(name, None) for name in ("hyperfine", "python3-yaml"))
_IMAGE = "pagecage-bench-true"
_ROUNDS = """
import json, os, sys, time
commands = json.loads(sys.argv[2])
for _ in range(int(sys.argv[1])):
    for name, argv in commands.items():
        begin = time.monotonic()
        child = os.posix_spawnp(argv[0], argv, os.environ, file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
        _, status, used = os.wait4(child, 0)
        if status:
            sys.exit(f"{name} ended with {os.waitstatus_to_exitcode(status)}")
        print(json.dumps({"name": name, "seconds": time.monotonic() - begin,
            "cpu_seconds": used.ru_utime + used.ru_stime, "most_bytes": used.ru_maxrss * 1024}))
"""


@dataclass(frozen=True)
class PeerCost:
    """The seconds of each start, and the median CPU time and memory of the starting process.

    What a daemon does for it (systemd, dockerd) is in the seconds alone.
    """

    seconds: tuple[float, ...]
    cpu_seconds: float
    most_bytes: float


def commands(folder: str) -> Mapping[str, Sequence[str]]:
    """Return the command of each peer on the host; `folder` has BenchExec."""
    scope = ("systemd-run", "--scope", "--quiet")
    benchexec = (*scope, "-p", "Delegate=yes", "env", f"PYTHONPATH={folder}", "python3", "-m")
    limits = ("--memlimit", "1GB", "--output", "/dev/null")
    return {
        "systemd-run": (*scope, "true"),
        "hyperfine": ("hyperfine", "-N", "--runs", "1", "--style", "none", "true"),
        "docker run": ("docker", "run", "--rm", "--network=none", _IMAGE, "/true"),
        "runexec": (*benchexec, "benchexec.runexecutor", "--no-container", *limits, "true"),
    }


def peer_costs(bed: Bed, rounds: int = NOTHINGS) -> Mapping[str, PeerCost]:
    """Start each peer in turn, `rounds` times; the first round is not counted."""
    folder = f"{bed.host.spool_dir}/peers"
    _bring(bed, folder)
    argv = json.dumps(commands(folder))
    done = bed.run("python3", "-c", _ROUNDS, str(rounds + 1), argv)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    found: dict[str, PeerCost] = {}
    for name in commands(folder):
        own = [row for row in rows if row["name"] == name][1:]
        cpu, most = (median(row[key] for row in own) for key in ("cpu_seconds", "most_bytes"))
        found[name] = PeerCost(tuple(row["seconds"] for row in own), cpu, most)
    return found


def _bring(bed: Bed, folder: str) -> None:
    """Copy BenchExec to the host, and load an image with nothing but a static program."""
    spec = find_spec("benchexec")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    source = scratch() / "true"
    source.mkdir(parents=True, exist_ok=True)
    (source / "true.c").write_text("int main(void) { return 0; }\n")
    run(["gcc", "-static", "-O1", "-o", source / "true", source / "true.c"])
    bed.host.push([Path(spec.submodule_search_locations[0])], folder)
    bed.host.push([source / "true"], f"{folder}/image")
    bed.run("systemctl", "start", "docker")
    bed.run("sh", "-c", f"tar -C {folder}/image -c true | docker import - {_IMAGE} >/dev/null")


def measure(session: Session) -> Iterator[Figure]:
    """Compare a trial of nothing with each peer."""
    session.leave()
    trials = [seconds_of_nothing(one) for one in run_nothings(session.wish)]
    with started(session.wish, PACKAGES) as bed:
        peers = peer_costs(bed)
    for name, cost in peers.items():
        ratio, low, high = ratio_of_pairs(trials, list(cost.seconds))
        says = (
            f"{median(trials):.2f} s a trial of nothing, {median(cost.seconds):.2f} s {name}"
            f" ({cost.cpu_seconds:.2f} s of CPU, {cost.most_bytes / 1e6:.0f} MB)"
        )
        aim = {"systemd-run": 2.0, "runexec": 1.0}.get(name)
        stated = "none set" if aim is None else f"{aim:g} or less"
        met = aim is None or ratio <= aim
        yield Figure(f"trial / {name}", ratio, low, high, stated, met, len(trials), says)
