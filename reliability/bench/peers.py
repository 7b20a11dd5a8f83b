"""The fixed cost of running nothing: a trial beside other programs that start a command in a cage.

Each starts /bin/true once. hyperfine measures time alone; systemd-run and docker set limits;
runexec of BenchExec sets limits, measures, and proves that no process is left. None of them proves
a limit or a cache state, which is most of what a trial does. Trials and peers run in turns on one
machine: in the guest, and on this machine under a systemd of its own.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pagecage.agent.protocol import RunRequest, request_to_json
from pagecage.checkout import TOP
from pagecage.errors import HostError
from pagecage.hosts.agent_package import make_agent_package
from pagecage.model.record import read_records
from pagecage.model.trial import Package, Trial, Workload
from pagecage.process import run
from reliability.bench.bed import (
    MOST_TIMES_PEER,
    Bed,
    Figure,
    Session,
    figure_of_pairs,
    keep,
    make_trial,
    scratch,
    started,
)
from reliability.campaign import tell

_SYSTEMD = "/lib/systemd/systemd"
_ENTER = f"""
set -e
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /run
mkdir -p /run/systemd/system
cp "$1" /run/systemd/system/bench.service
exec env container=other {_SYSTEMD} --system --unit=bench.service --log-target=null --show-status=no
"""
_SERVICE = """
[Unit]
DefaultDependencies=no
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
StandardOutput=file:{folder}/out
StandardError=file:{folder}/err
ExecStart=/bin/sh {folder}/command
"""


def run_under_systemd(argv: Sequence[str | Path], folder: Path, timeout_seconds: float) -> str:
    """Run a command in a service of a new systemd; return what it printed.

    Raises HostError if it failed. `folder` keeps its output and must have no space in its path.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script = f"{shlex.join(map(str, argv))}\necho $? >{folder}/status\n"
    (folder / "status").unlink(missing_ok=True)
    (folder / "command").write_text(script)
    (folder / "bench.service").write_text(_SERVICE.format(folder=folder))
    unshare = ["unshare", "--mount", "--cgroup", "--uts", "--ipc", "--pid", "--fork"]
    entered = [*unshare, "--mount-proc", "sh", "-c", _ENTER, "sh", str(folder / "bench.service")]
    run(entered, check=False, timeout_seconds=timeout_seconds)
    if not (folder / "status").exists() or (folder / "status").read_text().strip() != "0":
        words = (folder / "err").read_text() if (folder / "err").exists() else "systemd did not run"
        raise HostError(f"{argv[0]} failed under systemd: {words.strip()[-500:]}")
    return (folder / "out").read_text()


def nothing(count: int) -> tuple[Trial, ...]:
    """Return trials that start `true` without limits, data or collectors."""
    true = Workload("true", (), "command")
    return tuple(make_trial(f"nothing_{number}", true) for number in range(count))


def request_file(path: Path, folder: str, data_dir: str, count: int) -> Path:
    """Write the request of so many trials for an agent whose files are in `folder`."""
    request = RunRequest(
        run_id=path.stem,
        plan_sha256="0" * 64,
        host="bench",
        data_dir=data_dir,
        spool_dir=f"{folder}/spool",
        records_path=f"{folder}/{path.stem}.jsonl",
        programs_dir=f"{folder}/bin",
        user=False,
        machine={"state_id": None, "restore_seq": None, "emulated": False, "details": {}},
        harness={"version": "0", "git_revision": None, "agent_sha256": "0" * 64},
        trials=nothing(count),
    )
    path.write_text(json.dumps(request_to_json(request)))
    return path


_WITH_CONTROLLERS = """
import sys
sys.path.insert(0, sys.argv[1])
from pagecage.agent.main import main
from pagecage.agent import facts
found = facts._cgroup
facts._cgroup = lambda systemd: found(systemd) | {"controllers": ["cpu", "io", "memory"]}
sys.exit(main(sys.argv[2:]))
"""


def serve_command(folder: str, name: str, *, has_controllers: bool = True) -> list[str]:
    """Return the agent's command for the request NAME.json in this folder.

    On a machine without controllers the agent is told that it has some. Trials of nothing need
    none, but the product does not run them there.
    """
    agent = f"{folder}/agent.pyz"
    start = [agent] if has_controllers else ["-c", _WITH_CONTROLLERS, agent]
    return ["python3", *start, "serve", f"{folder}/{name}.json", f"{folder}/{name}.frames"]


def trial_seconds(path: Path) -> list[float]:
    """Return the seconds from each trial's start to the next one's, its record included.

    Raises ValueError if a trial did not succeed.
    """
    records = tuple(read_records(path))
    for record in records:
        if record.outcome != "ok":
            raise ValueError(f"{record.trial_id} is {record.outcome}: {record.error}")
    return differences([one.phases[0].start_monotonic_seconds for one in records])


def differences(starts: Sequence[float]) -> list[float]:
    """Return the seconds between moments that follow each other."""
    return [float(after - before) for before, after in pairwise(starts)]


def phase_seconds(path: Path) -> dict[str, list[float]]:
    """Return the seconds of each phase, by its name."""
    found: dict[str, list[Any]] = {}
    for record in read_records(path):
        for phase in record.phases:
            found.setdefault(phase.name, []).append(phase.seconds)
    return found


PACKAGES = tuple(Package(name, None) for name in ("hyperfine", "python3-yaml"))
ROUNDS = 10
NATIVE_ROUNDS = 30
_IMAGE = "pagecage-bench-true"
_STEPS = """
import json, os, sys, time
for name, argv in json.load(open(sys.argv[1])):
    begin = time.monotonic()
    child = os.posix_spawnp(argv[0], argv, os.environ, file_actions=[
        (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status, used = os.wait4(child, 0)
    if status:
        sys.exit(f"{name} ended with {os.waitstatus_to_exitcode(status)}")
    print(json.dumps({"name": name, "seconds": time.monotonic() - begin,
        "cpu_seconds": used.ru_utime + used.ru_stime, "most_bytes": used.ru_maxrss * 1024}))
"""

_AGENTS = ("one", "first", "second")
Step = tuple[str, Sequence[str]]


@dataclass(frozen=True)
class PeerCost:
    """The seconds of each start, and the median CPU time and memory of the starting process.

    What a daemon does for it (systemd, dockerd) is in the seconds alone.
    """

    seconds: tuple[float, ...]
    cpu_seconds: float
    most_bytes: float


@dataclass(frozen=True)
class Costs:
    """The cost of a trial and of each peer on one machine, and the trial's phases in seconds."""

    machine: str
    trial: PeerCost
    peers: Mapping[str, PeerCost]
    phases: Mapping[str, float]


def commands(folder: str, *, has_memory: bool = True) -> Mapping[str, Sequence[str]]:
    """Return the command of each peer; `folder` has BenchExec.

    Without the memory controller runexec sets no limit.
    """
    scope = ("systemd-run", "--scope", "--quiet")
    benchexec = (*scope, "-p", "Delegate=yes", "env", f"PYTHONPATH={folder}", "python3", "-m")
    limits = (*(("--memlimit", "1GB") if has_memory else ()), "--output", "/dev/null")
    return {
        "systemd-run": (*scope, "true"),
        "hyperfine": ("hyperfine", "-N", "--runs", "1", "--style", "none", "true"),
        "docker run": ("docker", "run", "--rm", "--network=none", _IMAGE, "/true"),
        "runexec": (*benchexec, "benchexec.runexecutor", "--no-container", *limits, "true"),
    }


def steps(
    peers: Mapping[str, Sequence[str]], rounds: int, folder: str, *, has_controllers: bool = True
) -> list[Step]:
    """Return one agent with one trial, half of the trials, the peers by turns, the other half.

    The first trial of each agent and the first round of the peers are not counted.
    """
    by_turns = [(name, argv) for _ in range(rounds + 1) for name, argv in peers.items()]
    agents = [
        (name, serve_command(folder, name, has_controllers=has_controllers)) for name in _AGENTS
    ]
    return [*agents[:2], *by_turns, agents[2]]


def write_requests(target: Path, folder: str, data_dir: str, rounds: int) -> list[Path]:
    """Write the requests of `steps` for an agent whose files are in `folder`."""
    half = rounds // 2
    counts = {"one": 1, "first": half + 1, "second": rounds - half + 1}
    return [
        request_file(target / f"{name}.json", folder, data_dir, count)
        for name, count in counts.items()
    ]


def costs_of(machine: str, rows: Sequence[Mapping[str, Any]], records: Sequence[Path]) -> Costs:
    """Return the costs from the rows of `_STEPS` and from the records of both agents.

    The CPU time of a trial is what an agent with several takes beyond an agent with one.
    """
    seconds = [one for path in records for one in trial_seconds(path)]
    cpu = {row["name"]: row["cpu_seconds"] for row in rows}
    of_trial = (cpu["first"] + cpu["second"] - 2 * cpu["one"]) / len(seconds)
    most = max(row["most_bytes"] for row in rows if row["name"] == "second")
    names = dict.fromkeys(row["name"] for row in rows if row["name"] not in _AGENTS)
    phases: dict[str, list[float]] = {}
    for path in records:
        for name, found in phase_seconds(path).items():
            phases.setdefault(name, []).extend(found[1:])
    return Costs(
        machine,
        PeerCost(tuple(seconds), of_trial, most),
        {name: _cost([row for row in rows if row["name"] == name][1:]) for name in names},
        {name: median(found) for name, found in phases.items()},
    )


def _cost(rows: Sequence[Mapping[str, Any]]) -> PeerCost:
    cpu, most = (median(row[key] for row in rows) for key in ("cpu_seconds", "most_bytes"))
    return PeerCost(tuple(row["seconds"] for row in rows), cpu, most)


def in_guest(bed: Bed, rounds: int = ROUNDS) -> Costs:
    folder, files = f"{bed.host.spool_dir}/peers", scratch() / "peers"
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir(parents=True)
    source = scratch() / "true"
    source.mkdir(parents=True, exist_ok=True)
    (source / "true.c").write_text("int main(void) { return 0; }\n")
    run(["gcc", "-static", "-O1", "-o", source / "true", source / "true.c"])
    bed.host.push([Path(_benchexec())], folder)
    bed.host.push([source / "true"], f"{folder}/image")
    bed.run("systemctl", "start", "docker")
    bed.run("sh", "-c", f"tar -C {folder}/image -c true | docker import - {_IMAGE} >/dev/null")
    (files / "steps.json").write_text(json.dumps(steps(commands(folder), rounds, folder)))
    requests = write_requests(files, folder, bed.host.data_dir, rounds)
    bed.host.push([make_agent_package(TOP).agent, files / "steps.json", *requests], folder)
    done = bed.run("python3", "-c", _STEPS, f"{folder}/steps.json")
    for name in _AGENTS:
        (files / f"{name}.jsonl").write_text(bed.run("cat", f"{folder}/{name}.jsonl").stdout)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    machine = "the guest, on an emulated CPU" if bed.emulated else "the guest"
    return costs_of(machine, rows, [files / "first.jsonl", files / "second.jsonl"])


def natively(rounds: int = NATIVE_ROUNDS) -> Costs:
    """Measure on this machine, with the peers that it has, under a systemd of its own."""
    files = scratch() / "peers-natively"
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir(parents=True)
    shutil.copy(make_agent_package(TOP).agent, files)
    site = str(Path(_benchexec()).parent)
    peers = {
        name: argv
        for name, argv in commands(site, has_memory=False).items()
        if shutil.which(argv[0]) and name != "docker run"
    }
    plan = steps(peers, rounds, str(files), has_controllers=False)
    (files / "steps.json").write_text(json.dumps(plan))
    write_requests(files, str(files), f"{files}/data", rounds)
    argv: list[str | Path] = ["python3", "-c", _STEPS, files / "steps.json"]
    lines = run_under_systemd(argv, files / "systemd", 280).splitlines()
    records = [files / "first.jsonl", files / "second.jsonl"]
    return costs_of("this machine, under a systemd of its own", [*map(json.loads, lines)], records)


def _benchexec() -> str:
    spec = find_spec("benchexec")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return str(spec.submodule_search_locations[0])


def measure(session: Session) -> Iterator[Figure]:
    """Compare a trial of nothing with each peer, in the guest and natively."""
    tell("natively: trials of nothing and peers by turns")
    found = [natively()]
    yield from figures(found[0], "natively: ")
    session.leave()
    with started(session.wish, PACKAGES) as bed:
        found.insert(0, in_guest(bed))
    yield from figures(found[0], "")
    keep("peers", found)


def figures(costs: Costs, prefix: str) -> Iterator[Figure]:
    """Yield the ratio of a trial to each peer."""
    trials = costs.trial
    for name, cost in costs.peers.items():
        says = f"{_said(trials)} a trial of nothing, {_said(cost)} {name}"
        sides = (list(trials.seconds), list(cost.seconds))
        most = MOST_TIMES_PEER.get(name)
        yield figure_of_pairs(f"{prefix}trial / {name}", *sides, says, most=most)


def _said(cost: PeerCost) -> str:
    return (
        f"{median(cost.seconds):.3f} s ({cost.cpu_seconds:.3f} s of CPU,"
        f" {cost.most_bytes / 1e6:.0f} MB)"
    )
