"""This machine as a host: systemd as PID 1 and cgroup v2, as root or by the user's own systemd."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pagecage.agent.facts import read_facts
from pagecage.errors import HostError
from pagecage.hosts.host import HostNeed, MachineState, Progress
from pagecage.requirements import check_host


class LocalHost:
    """Runs the agent as a child process."""

    name = "local"

    def __init__(self, data_dir: Path | None = None) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        self.data_dir = str(data_dir or cache / "pagecage/data")
        runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}") if os.getuid() else "/run"
        self.spool_dir = f"{runtime}/pagecage"

    @property
    def user(self) -> bool:
        """Anybody but root measures by his own systemd."""
        return os.getuid() != 0

    def facts(self) -> dict[str, Any]:
        """What this machine is, as the agent sees it."""
        return read_facts(Path(self.data_dir), self.user)

    def is_emulated(self, progress: Progress) -> bool:
        """Whether this machine is itself a guest without hardware help, as its CPU model tells."""
        return "QEMU TCG" in (self.facts()["cpu_model"] or "")

    def prepare(self, need: HostNeed, progress: Progress) -> None:
        """Check that the machine is fit and has room."""
        facts = self.facts()
        missed = check_host(facts)
        if missed:
            raise HostError(f"this machine cannot be the host: {missed[0].reason}", missed[0].mend)
        if facts["free_bytes"] < need.data_bytes:
            raise HostError(f"the dataset does not fit {self.data_dir}", "choose a smaller SIZE or another --data-dir")

    def start(self) -> MachineState:
        """Nothing to start: the machine is running."""
        return MachineState(None, None, self.is_emulated(lambda _: None), {})

    def restart(self) -> MachineState:
        """A running machine has no saved state to start from."""
        raise HostError("a fresh machine state needs the vm: this machine cannot be restored", "use HOST=vm")

    def command(self, argv: Sequence[str]) -> list[str]:
        """The argv itself."""
        return list(argv)

    def push(self, sources: Sequence[Path], directory: str) -> None:
        """Copy into the spool, which lies in memory."""
        Path(directory).mkdir(parents=True, exist_ok=True)
        for source in sources:
            shutil.copy2(source, directory)

    def outer_sample(self) -> dict[str, Any] | None:
        """Nothing is around this machine that it could see."""
        return None

    def stop(self) -> None:
        """Nothing to stop."""
