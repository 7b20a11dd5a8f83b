from __future__ import annotations

import pytest

from pagecage.agent.collectors.collector import CollectorContext
from tests.builders.collector_contexts import collector_context
from tests.fake_host.machine import DATASET, MAJ_MIN, Machine


@pytest.fixture
def around(machine: Machine) -> CollectorContext:
    """A slice with a few counters, and what else a collector gets."""
    directory = machine.root / "traces"
    directory.mkdir()
    cgroup = machine.cgroups / "slice"
    cgroup.mkdir()
    (cgroup / "io.stat").write_text(f"{MAJ_MIN} rbytes=5 wbytes=0 rios=1 wios=0\n")
    (cgroup / "memory.current").write_text("4096\n")
    (cgroup / "memory.events").write_text("max 3\noom 0\noom_kill 0\n")
    return collector_context(
        directory,
        cgroup,
        disk=machine.resolve_disk(machine.data),
        datasets=(machine.data / DATASET.file_name,),
        spool=machine.spool,
    )
