"""This machine as a host: systemd as PID 1 and cgroup v2, as root or by the user's own systemd."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagecage.agent.system.facts import is_emulated, read_facts
from pagecage.agent.system.systemd import runtime_dir
from pagecage.errors import HostError, PagecageError
from pagecage.hosts.agent_package import AgentPackage, agent_argv, push_kit
from pagecage.hosts.host import MachineState, Progress, ResourceNeeds
from pagecage.model.requirements import check_host
from pagecage.units import format_bytes


class LocalHost:
    """Runs the agent as a child process."""

    name = "local"

    def __init__(self, data_dir: Path | None = None) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        self.data_dir = str(data_dir or cache / "pagecage/data")
        self.spool_dir = f"{runtime_dir()}/pagecage" if os.getuid() else "/dev/shm/pagecage"

    @property
    def user(self) -> bool:
        """Anybody but root measures by his own systemd."""
        return os.getuid() != 0

    def facts(self) -> dict[str, Any]:
        """What this machine is, as the agent sees it."""
        return read_facts(Path(self.data_dir), self.user)

    def is_emulated(self, progress: Progress) -> bool:
        """Whether this machine is itself a guest without hardware help, as its CPU model tells."""
        return is_emulated(self.facts())

    def prepare(self, need: ResourceNeeds, progress: Progress) -> None:
        """Check that the machine is fit and has room."""
        facts = self.facts()
        missed = check_host(facts)
        if missed:
            raise HostError(f"this machine cannot be the host: {missed[0].reason}", missed[0].hint)

    def require_room(self, dataset_bytes: int) -> None:
        """Raise PagecageError when a dataset of this size neither lies in the data directory nor fits there."""
        there = sum(path.stat().st_size for path in Path(self.data_dir).glob("*.bin"))
        free_bytes = self.facts()["free_bytes"]
        if free_bytes + there < dataset_bytes:
            raise PagecageError(
                f"{format_bytes(dataset_bytes)} do not fit {self.data_dir} ({format_bytes(free_bytes)} free)",
                "choose a smaller --size or another --data-dir",
            )

    def start(self) -> MachineState:
        """Nothing to start: the machine is running."""
        return MachineState(None, None, self.is_emulated(lambda _: None), {})

    def restart(self) -> MachineState:
        """The same machine once more, after an agent died on it: there is no saved state to go back to."""
        return self.start()

    def install(self, kit: AgentPackage) -> None:
        """Copy everything into the spool."""
        push_kit(self, kit)

    def agent_command(self) -> list[str]:
        """The agent in the spool."""
        return self.command(agent_argv(self.spool_dir))

    def command(self, argv: Sequence[str]) -> list[str]:
        """The argv itself, its `python3` being ours: the first on PATH may be too old, or of a version not active.

        `systemctl --user` is told where its systemd is, where no login has.
        """
        told = not self.user or os.environ.get("XDG_RUNTIME_DIR")
        settings = [] if told else ["env", f"XDG_RUNTIME_DIR={runtime_dir()}"]
        program = [sys.executable, "-I"] if argv[0] == "python3" else [argv[0]]
        return [*settings, *program, *argv[1:]]

    def interactive(self, argv: Sequence[str]) -> list[str]:
        """The same: it has our terminal."""
        return self.command(argv)

    def push(self, sources: Sequence[Path], directory: str) -> None:
        """Copy into the spool, which lies in memory."""
        _own_directory(Path(self.spool_dir))
        Path(directory).mkdir(parents=True, exist_ok=True)
        for source in sources:
            aside = Path(directory, f".{source.name}.part")  # a program that still runs cannot be written over
            shutil.copy2(source, aside)
            aside.replace(Path(directory, source.name))

    def outer_sample(self) -> dict[str, Any] | None:
        """Nothing is around this machine that it could see."""
        return None

    def throttle(self, limits: Mapping[str, int]) -> dict[str, int]:
        """Nobody is around this machine to hold its disk."""
        raise HostError("QEMU holds a disk back only where it runs the host, and this machine is no guest of ours",
                        "use HOST=vm")  # fmt: skip

    def stop(self) -> None:
        """Nothing to stop."""


def _own_directory(path: Path) -> None:
    """Make the spool ours alone: what lies in it is run, and its parent may be open to everybody."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    stat = path.lstat()
    if stat.st_uid != os.getuid() or stat.st_mode & 0o022 or path.is_symlink():
        raise HostError(f"{path} belongs to somebody else, or others may write there", f"remove {path}")
