"""The place of the kills on this machine: a project, a disk, and the state that is compared."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagecage.linux.cgroupfs import Cgroupfs
from pagecage.process import run
from reliability.guest_kills import guest_state
from reliability.guest_kills.leftovers import State

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
            *(line for line in guest_state.mounts() if str(folder) in line or "shm" in line),
            *(line for line in guest_state.cgroups() if own_groups in line),
            *(f"{name} {(queue / name).read_text()}" for name in ("read_ahead_kb", "scheduler")),
            *(f"file {path.relative_to(place)}" for path in place.rglob("*")),
            *_spool_files(),
            *_parts(folder / "runs"),
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


def _parts(runs: Path) -> Iterator[str]:
    yield from (f"file {path.name}" for path in runs.rglob("*.part*"))
    yield from (f"file {path.name}" for path in runs.glob(".*"))
