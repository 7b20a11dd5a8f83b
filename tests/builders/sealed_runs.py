"""`pagecage run` on this machine with its own processes, mounts and spool."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagecage.linux.cgroup import Cgroup, cgroup_of
from pagecage.linux.processes import children, tree
from pagecage.model.record import Record
from pagecage.process import Process, run, spawn
from pagecage.verdicts.evaluate import Verdicts
from reliability.campaign import NAMESPACES
from tests.builders.command_line import CommandLine, pagecage_argv, verdicts
from tests.builders.waiting import wait_until
from tests.tree import ROOT

LEVEL = f"cold-{os.getpid()}"
"""A level of this process alone, since tests run in parallel and its name is in the cgroup's."""
_SPOOL = 'mount --bind "$1" /dev/shm && shift && "$@"; exit $?'
"""The shell that becomes process 1 there, which reaps the orphans of killed parents."""
_LONGEST_SECONDS = 120.0
_EXPERIMENT = """question = "Is a trial counted whose cgroup was changed?"
repeats = 1
fresh = "never"
collectors = []
response = "full_pass_seconds"

[workload]
program = "pcread"
arguments = [
  "--file", "{file}", "--expect-sidecar", "{sidecar}", "--block-bytes", "4096",
  "--source", "mmap", "--pattern", "sequential", "--max-seconds", "{max_seconds}",
]
min_memory_bytes = "2MiB"

[sizes]
full = { dataset = "16MiB", max_seconds = 60 }
default = { dataset = "16MiB", max_seconds = 60 }
emulated = { dataset = "16MiB", max_seconds = 60 }
smoke = { dataset = "16MiB", max_seconds = 60 }

[factors]
cage = ["sealed"]
cache = ["LEVEL"]

[levels.cache.LEVEL]
cache = "cold"
"""
_CAGE = 'about = "A slow disk."\nMemoryMax = "64MiB"\nIOReadBandwidthMax = "4MB"\n'


class SealedRun:
    """A run of one trial that reads for four seconds, in namespaces of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._command_line = CommandLine(folder / "runs", "sealed")
        for name in ("experiments", "cgroups", "shm"):
            (folder / name).mkdir()
        (folder / "pagecage.toml").touch()
        (folder / "experiments/sealed.toml").write_text(_EXPERIMENT.replace("LEVEL", LEVEL))
        (folder / "cgroups/sealed.toml").write_text(_CAGE)

    @contextmanager
    def started(self, *words: str) -> Iterator[Process[bytes]]:
        """Start the run, and end every process of it at the end."""
        place = ("--data-dir", str(self.folder / "data"))
        argv = pagecage_argv("run", "sealed", "--host", "local", *place, "--yes", *words)
        env = dict.fromkeys(("XDG_STATE_HOME", "XDG_CACHE_HOME"), str(self.folder))
        env |= {"PAGECAGE_RUNS": str(self.folder / "runs"), "PYTHONPATH": str(ROOT)}
        sealed = [*NAMESPACES, "sh", "-c", _SPOOL, "sh", str(self.folder / "shm"), *argv]
        with (self.folder / "told").open("ab") as told:
            process = spawn(sealed, stdout=told, stderr=told, env=env, cwd=self.folder)
        try:
            yield process
        finally:
            for pid in list(tree(process.pid))[1:2]:  # process 1 of the namespace
                os.kill(pid, signal.SIGKILL)
            process.wait()

    def ended(self, *words: str) -> int:
        """Run to the end; return the exit status."""
        with self.started("--dataset", "smoke", *words) as process:
            return process.wait(_LONGEST_SECONDS)

    def told(self) -> str:
        """Return what the run printed."""
        return (self.folder / "told").read_text(errors="replace")

    def reading(self, process: Process[bytes]) -> tuple[int, Cgroup]:
        """Return the workload and its cgroup as soon as it reads behind its limit."""
        found: list[tuple[int, Cgroup]] = []

        def reads() -> bool:
            assert process.poll() is None, self.told()
            for pid in tree(process.pid):
                group = cgroup_of(pid) if _program(pid) == "pcread" else None
                if group and _read_bytes(pid) > 1_000_000:
                    found.append((pid, group))
            return bool(found)

        wait_until(reads, _LONGEST_SECONDS)
        return found[0]

    def inside(self, process: Process[bytes], *argv: str) -> None:
        """Run a command with the mounts of the run."""
        [first] = children(process.pid)
        run(["nsenter", "--mount", "--pid", "--target", str(first), *argv])

    def records(self) -> list[Record]:
        """Return the records of all attempts."""
        return self._command_line.every_attempt()

    def verdicts(self, record: Record) -> Verdicts:
        """Return the verdicts on a record."""
        return verdicts(self._command_line, record)


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _read_bytes(pid: int) -> int:
    try:
        words = Path(f"/proc/{pid}/io").read_text().split()
    except OSError:
        return 0
    return int(words[words.index("read_bytes:") + 1])
