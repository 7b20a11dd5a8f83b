"""A fake machine on which the real agent runs.

systemd, cgroups, queue settings and tools are fakes; files, processes, signals and the page cache
are real.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pagecage.agent import facts, host_session, settings, shell, storage
from pagecage.agent.collectors import blocklat, bpftrace
from pagecage.agent.collectors.blocklat import BlockLatencyTracer
from pagecage.agent.collectors.bpftrace import FaultTracer
from pagecage.agent.data_files import GENERATOR_VERSION
from pagecage.agent.drivers.engine import ContainerEngines
from pagecage.agent.facts import Kernel, Tracefs
from pagecage.agent.host_session import HostSession
from pagecage.agent.limits import fidelity
from pagecage.agent.limits.calibration import Calibrator
from pagecage.agent.programs import command, measured_part
from pagecage.agent.protocol import AnswerQueue, FrameStream, RunRequest
from pagecage.agent.settings import DirtyLimits, MemoryReservation, QueueSettingsJournal
from pagecage.linux import block_device, cgroup, systemd
from pagecage.linux.block_device import Disk
from pagecage.linux.cgroup import Cgroup
from pagecage.linux.cgroupfs import Cgroupfs
from pagecage.linux.child_processes import Interruption, ToolProcesses
from pagecage.linux.procfs import read_text
from pagecage.linux.systemd import Systemd
from pagecage.model.cage import Cage
from pagecage.model.trial import Dataset, Trial, Workload
from tests.fake_host import trees

HERE = Path(__file__).resolve().parent
WORKLOADS = HERE.parent / "fake_workloads"
MAJ_MIN = "259:7"
NODE = "/dev/fakedisk"
DISK = Disk("fakedisk", MAJ_MIN, NODE, "ext4", "/")
OTHER_MAJ_MIN, OTHER_NODE = "259:8", "/dev/otherdisk"
READ_AHEAD_KB = "256"
SYSTEMD_VERSION = 257
CAGE = Cage(
    "tight",
    {
        "MemoryMax": 8 * 1024**2,
        "MemorySwapMax": 0,
        "IOReadBandwidthMax": 20_000_000,
        "IOReadIOPSMax": 500,
    },
)
LIGHT = Cage("light", {"IOReadIOPSMax": 500})
DATASET = Dataset(1024 * 1024)

Set = Callable[[Any, str, Any], None]
"""setattr, or monkeypatch.setattr."""


class Machine:
    """The paths of the fake machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log, self.cgroups, self.control = (
            root / "log",
            root / "cgroup",
            root / "system.control",
        )
        self.sys, self.spool, self.data = root / "sys", root / "spool", root / "data"
        self.kernel = root / "kernel"
        """The files by which a kernel shows its probes."""
        self.records = root / "host-records.jsonl"
        self.manager_socket = root / "private"
        """The socket of systemd, which exists only if a test serves it."""
        self.other = root / "on-another-disk"
        """A directory on another disk."""
        self.docker_root = root / "docker"
        """The folder of the engine's images and layers."""
        self.agent_pid = root / "agent.pid"
        """The pid of the agent, written by agent_on_fakes.py."""
        self.set_variable: Callable[[str, str], None] = os.environ.__setitem__

    def misbehave(self, **how: str) -> None:
        """Set variables of the fake commands and workloads: FAILS="fio" is FAKE_FAILS=fio."""
        for name, value in how.items():
            self.set_variable(f"FAKE_{name}", value)

    def make(self) -> None:
        made = (self.cgroups, self.control, self.sys, self.spool, self.data, self.other)
        for path in (*made, self.docker_root / "upper"):
            path.mkdir(parents=True)
        (self.cgroups / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        trees.disk(self.sys, "fakedisk", MAJ_MIN)
        trees.disk(self.sys, "otherdisk", OTHER_MAJ_MIN)
        self.log.touch()
        trees.kernel(self.kernel)
        make_dataset(self.data)

    def environment(self) -> dict[str, str]:
        return {
            "FAKE_LOG": str(self.log),
            "FAKE_PARENT": str(self.cgroups / systemd.PARENT),
            "FAKE_NODE": NODE,
            "FAKE_OTHER_NODE": OTHER_NODE,
            "FAKE_OTHER_MAJ_MIN": OTHER_MAJ_MIN,
            "FAKE_CONTROL": str(self.control),
            "FAKE_DOCKER_ROOT": str(self.docker_root),
            "FAKE_MAJ_MIN": MAJ_MIN,
            "FAKE_AGENT": str(os.getpid()),
            "PATH": f"{HERE / 'bin'}:{os.environ['PATH']}",
        }

    def stand_in(self, set_: Set) -> None:
        """Point the agent in this process at the fake machine."""
        set_(block_device, "read_mountinfo", self._mountinfo)
        read_queue_settings = partial(block_device.read_queue_settings, sys=self.sys)
        for module in (systemd, cgroup):
            set_(module, "CGROUP_ROOT", self.cgroups)
        for module in (facts, settings, fidelity, measured_part):
            set_(module, "read_queue_settings", read_queue_settings)
        for module in (command, facts, storage, host_session, shell):
            set_(module, "resolve_disk", self.resolve_disk)
        set_(host_session, "Tracefs", partial(Tracefs, sys=self.sys))
        kernel = Kernel(self.kernel / "sys", self.kernel / "proc")
        for module in (bpftrace, blocklat):
            set_(module, "Kernel", lambda: kernel)
        set_(host_session, "MACHINE", self.spool)
        set_(Systemd, "control_directory", lambda _: self.control)
        set_(Systemd, "socket", lambda _: self.manager_socket)
        set_(facts, "is_pid1", lambda: True)
        set_(cgroup, "cgroup_of", self._cgroup_of)
        set_(settings, "write_queue_setting", self.write_queue_setting)

    def _mountinfo(self) -> str:
        return trees.mountinfo(
            (MAJ_MIN, "/", "ext4", NODE),
            (OTHER_MAJ_MIN, os.path.realpath(self.other), "ext4", OTHER_NODE),
        )

    def resolve_disk(self, path: Path) -> Disk:
        """Return the fake disk that a path is on."""
        return block_device.resolve_disk(path, self.sys, self._mountinfo())

    def _cgroup_of(self, pid: int | str, *_: object) -> Cgroup | None:
        """Return the fake cgroup of a process, or of its nearest ancestor that has one."""
        places = {
            int(word): file.parent
            for file in self.cgroups.rglob("cgroup.procs")
            for word in file.read_text().split()
        }
        while (stat := read_text(Path(f"/proc/{pid}/stat"))) and pid not in places:
            pid = int(stat.rpartition(")")[2].split()[1])
        place = places.get(int(pid)) if stat else None
        return None if place is None else Cgroup(unified=place)

    def write_queue_setting(self, disk: Disk, setting: str, value: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{setting} {value}\n")
        block_device.write_queue_setting(disk, setting, value, self.sys)

    def read_ahead_kb(self) -> str:
        return (self.sys / "block/fakedisk/queue/read_ahead_kb").read_text().strip()

    def log_lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def left(self) -> list[str]:
        """Return what a trial or a cleanup should have removed and did not."""
        left: list[str | Path] = [*self.cgroups.glob("**/pagecage-*"), *self.control.iterdir()]
        if (value := self.read_ahead_kb()) != READ_AHEAD_KB:
            left.append(f"read_ahead_kb {value}")
        for pattern in ("queue-settings.json", "trials/*", "children/*"):
            left += self.spool.glob(pattern)
        return [str(one) for one in left]


def make_dataset(directory: Path, dataset: Dataset = DATASET) -> Path:
    """Write a dataset as pcgen does, with its sidecar."""
    path = directory / dataset.file_name
    with path.open("wb") as file:
        file.write(os.urandom(dataset.size_bytes))
        os.fsync(file.fileno())
    reported = {"size_bytes": dataset.size_bytes, "seed": dataset.seed, "fill": dataset.fill}
    sidecar = {"generator_version": GENERATOR_VERSION, **reported}
    path.with_name(path.name + ".json").write_text(json.dumps(sidecar))
    return path


def make_trial(program: str = "good.py", **changes: Any) -> Trial:
    """Return a trial with all parts: a cage, a dataset, a queue setting, collectors."""
    trial = Trial(
        trial_id="r1_tight",
        experiment="test",
        treatment={"cage": "tight"},
        repeat=1,
        block=1,
        position=0,
        workload=Workload(program, ("--file", "{file}")),
        cage=CAGE,
        cache="cold",
        dataset=DATASET,
        read_ahead_kb=128,
        collectors=("iostat", "sar", "vmtouch"),
        max_seconds=5.0,
        timeout_seconds=20.0,
    )
    return replace(trial, **changes)


def make_request(machine: Machine, *trials: Trial) -> RunRequest:
    return RunRequest(
        run_id="20261121T100000Z-test-local",
        plan_sha256="0" * 64,
        host="local",
        data_dir=str(machine.data),
        spool_dir=str(machine.spool),
        records_path=str(machine.records),
        programs_dir=str(WORKLOADS),
        user=False,
        machine={"state_id": None, "restore_seq": None, "emulated": False, "details": {}},
        harness={"version": "0", "git_revision": None, "agent_sha256": "0" * 64},
        trials=trials,
        disks={"wal": str(machine.other)},
    )


def make_session(
    machine: Machine,
    out: io.BytesIO,
    *trials: Trial,
    interruption: Interruption | None = None,
    inbox: AnswerQueue | None = None,
) -> HostSession:
    """Return the session that session.serve makes before the first trial; no tracer is started."""
    manager, heard = Systemd(user=False, version=SYSTEMD_VERSION), interruption or Interruption()
    disk, children = machine.resolve_disk(machine.data), ToolProcesses(machine.spool)
    request, by_files = make_request(machine, *trials), Cgroupfs(machine.spool)
    return HostSession(
        request=request,
        facts=facts.read_facts(machine.data, False, request.disks),
        disk=disk,
        systemd=manager,
        cgroupfs=by_files,
        calibrators={
            "systemd": Calibrator(manager, disk, machine.data, heard),
            "cgroupfs": Calibrator(by_files, disk, machine.data, heard),
        },
        tracer=FaultTracer(machine.spool, children),
        block_tracer=BlockLatencyTracer(machine.spool, children),
        settings=QueueSettingsJournal(machine.spool),
        memory=MemoryReservation(machine.spool),
        dirty_limits=DirtyLimits(machine.spool),
        children=children,
        engines=ContainerEngines(manager, machine.spool, machine.data),
        interruption=heard,
        stream=FrameStream(out),
        inbox=inbox or AnswerQueue(),
    )


def frames_of(written: bytes) -> list[dict[str, Any]]:
    """Return the frames of a stream, with a trace's bytes as its `body`."""
    frames, stream = [], io.BytesIO(written)
    while line := stream.readline():
        frame = json.loads(line)
        if "length" in frame:
            frame["body"] = stream.read(frame["length"])
            assert len(frame["body"]) == frame["length"]
        frames.append(frame)
    return frames


def trace_of(frames: list[dict[str, Any]], name: str) -> bytes:
    """Return the bytes of the only trace of this name."""
    [body] = [frame["body"] for frame in frames if frame.get("name") == name]
    return bytes(body)
