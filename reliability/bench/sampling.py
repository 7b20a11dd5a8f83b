"""The effect of the sampler alone on a reader, which no trial is without.

A reader reads a resident file in random blocks, so that only the CPU limits it, with and without
the product's own sampler on its processes, in turns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from pagecage.checkout import TOP
from pagecage.hosts.agent_package import make_agent_package
from pagecage.process import run
from reliability.bench.bed import LEAST_SPEED, Figure, Session, figure_of_pairs, scratch
from reliability.campaign import tell
from tests.tree import ROOT

PAIRS = 12
SECONDS = 2.0
_BY_TURNS = """
import json, os, subprocess, sys, tempfile
agent, reader, file, pairs, seconds, user = sys.argv[1:]
sys.path.insert(0, agent)
from pathlib import Path
from pagecage.agent.collectors.collector import CollectorContext
from pagecage.agent.collectors.sampler import Sampler
from pagecage.linux.block_device import resolve_disk
from pagecage.linux.child_processes import ToolProcesses
from pagecage.agent.facts import find_systemd
from pagecage.linux.processes import SupervisedProcesses
from pagecage.linux.trial_processes import CgroupProcesses
from pagecage.model.cage import Cage

unit, folder, disk = "pagecage-sampled.slice", Path(tempfile.mkdtemp()), resolve_disk(Path(file))
argv = [reader, "--file", file, "--no-handshake", "--source", "mmap", "--pattern", "random",
        "--block-bytes", "4096", "--passes", "1000000", "--max-seconds", seconds]

def read(is_sampled):
    if user == "none":
        processes = SupervisedProcesses(folder / "report", "bench")
        process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        processes.launched(process.pid)
    else:
        systemd = find_systemd(user == "user")
        cgroup = systemd.make(unit, Cage("", {}), disk)
        processes = CgroupProcesses(systemd, unit, cgroup)
        scope = ["systemd-run", "--scope", "--quiet", "--slice=" + unit, "--", *argv]
        process = subprocess.Popen(scope, stdout=subprocess.PIPE)
    tools, files = ToolProcesses(folder), (Path(file),)
    sampler = Sampler(CollectorContext(folder, disk, processes, files, tools))
    if is_sampled:
        sampler.start()
    out = process.communicate()[0]
    sampler.stop()
    if user != "none":
        systemd.remove(unit)
    end = next(line for line in map(json.loads, out.splitlines()) if line["type"] == "end")
    return end["bytes"] / end["seconds"]

read(False)
for number in range(int(pairs)):
    order = (True, False) if number % 2 else (False, True)
    found = {is_sampled: read(is_sampled) for is_sampled in order}
    print(json.dumps({"with": found[True], "without": found[False]}), flush=True)
"""


@dataclass(frozen=True)
class SamplerEffect:
    """Speeds with and without the sampler, in pairs, and how to measure them again."""

    where: str
    command: str
    rows: tuple[Mapping[str, float], ...]


def in_guest(session: Session) -> SamplerEffect:
    bed = session.bed()
    folder = f"{bed.host.spool_dir}/sampling"
    bed.host.push([make_agent_package(TOP).agent], folder)
    words = [f"{folder}/agent.pyz", bed.program("pcread"), bed.dataset, str(PAIRS), f"{SECONDS:g}"]
    manager = "user" if bed.host.user else "system"
    done = bed.run("python3", "-c", _BY_TURNS, *words, manager)
    rows = tuple(map(json.loads, done.stdout.splitlines()))
    where = "in the guest, on an emulated CPU" if bed.emulated else "in the guest"
    return SamplerEffect(where, f"make bench ONLY=sampler HOST={session.wish}", rows)


def natively() -> SamplerEffect:
    """Measure on this machine, without cgroups."""
    programs, file = ROOT / "build/host/bin", scratch() / "sampled.bin"
    scratch().mkdir(parents=True, exist_ok=True)
    run([programs / "pcgen", "--out", file, "--size-bytes", "67108864", "--seed", "1"])
    measured = (programs / "pcread", file, str(PAIRS), f"{SECONDS:g}")
    agent = str(make_agent_package(TOP).agent)
    argv = ["python3", "-c", _BY_TURNS, agent, *map(str, measured), "none"]
    try:
        done = run(argv, timeout_seconds=280)
    finally:
        for path in scratch().glob("sampled.bin*"):
            path.unlink()
    rows = tuple(map(json.loads, done.stdout.splitlines()))
    where = "on this machine, without cgroups"
    return SamplerEffect(where, "make bench ONLY=sampler HOST=local", rows)


def measure(session: Session) -> Iterator[Figure]:
    """Compare the speeds; keep them beside those of the other machine."""
    tell(f"reading {PAIRS} times with and without the sampler")
    found = natively() if session.wish == "local" else in_guest(session)
    path = scratch() / "sampler.json"
    stored = json.loads(path.read_text()) if path.exists() else []
    others = [one for one in stored if one["where"] != found.where]
    path.write_text(json.dumps([*others, asdict(found)], indent=1))
    on, off = ([row[key] for row in found.rows] for key in ("with", "without"))
    yield figure_of_pairs("sampler / none", on, off, found.where, least=LEAST_SPEED)
