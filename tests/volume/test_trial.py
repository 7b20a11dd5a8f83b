"""Trials without a cgroup whose I/O limits a volume of this machine holds: FUSE and loop(4)."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pagecage.agent.facts import read_facts
from pagecage.agent.host_session import Tracers, open_session
from pagecage.agent.mounted_volume import unmount_volume
from pagecage.agent.protocol import AnswerQueue, FrameStream, RunRequest
from pagecage.agent.session import run_trial
from pagecage.agent.volume_server import CONTROL_SOCKET, FUSE_PROGRAM, send_command
from pagecage.errors import HostError
from pagecage.linux.child_processes import Interruption
from pagecage.model.cage import Cage, LatencyFloor
from pagecage.model.record import Record, read_records
from pagecage.model.trial import CommandSpec, Dataset, Trial, Workload
from pagecage.verdicts.limits import judge_limits
from tests.builders.guest_runs import one_trial
from tests.builders.known import known
from tests.builders.volumes import PROGRAMS, needs_fuse
from tests.builders.waiting import wait_until
from tests.record_schema import breaches
from tests.tree import ROOT

pytestmark = needs_fuse
CAGE = Cage("c", {"IOReadIOPSMax": 100}, latency=LatencyFloor(500, 500), enforced_by="volume")
READS = "dd if=big of=/dev/null bs=4096 count=200 iflag=direct"


class Place:
    """The folders of an agent on this machine, apart from the folders of a user's runs.

    `copies` is the folder that a replay's files are copied to.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.spool, self.data = root, root / "spool", root / "data"
        self.copies = self.data / "replay"


@pytest.fixture
def host() -> Iterator[Place]:
    """Return folders on a disk, with the servers and one copied file in them."""
    (ROOT / "build/tests").mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=ROOT / "build/tests") as folder:
        place = Place(Path(folder))
        (place.spool / "bin").mkdir(parents=True)
        shutil.copy(PROGRAMS / FUSE_PROGRAM, place.spool / "bin")
        shutil.copy(ROOT / "build/host/bin/pcgen", place.spool / "bin")
        place.copies.mkdir(parents=True)
        (place.copies / "big").write_bytes(os.urandom(4 * 2**20))
        try:
            yield place
        finally:
            assert unmount_volume(place.spool) == []


def trial_of(place: Place, script: str, *cold: str) -> Trial:
    command = CommandSpec(cold, directory=str(place.copies), is_literal=True)
    workload = Workload("sh", ("-c", script), "command", 0, command)
    cache = "cold" if cold else "any"
    how = {"cache": cache, "driver": "process", "timeout_seconds": 60.0}
    return one_trial("r1_c", treatment={"cage": "c"}, workload=workload, cage=CAGE, **how)


def run_here(place: Place, trial: Trial) -> Record:
    request = RunRequest(
        run_id="20261121T100000Z-test-local",
        plan_sha256="0" * 64,
        host="local",
        data_dir=str(place.data),
        spool_dir=str(place.spool),
        records_path=str(place.root / "records.jsonl"),
        programs_dir=str(place.spool / "bin"),
        user=False,
        machine={"state_id": None, "restore_seq": None, "emulated": False, "details": {}},
        harness={"version": "0", "git_revision": None, "agent_sha256": "0" * 64},
        trials=(trial,),
    )
    facts = read_facts(place.data, False, {})
    stream, parts = FrameStream(io.BytesIO()), (Interruption(), AnswerQueue())
    with open_session(request, facts, stream, *parts, Tracers.of(place.spool)) as session:
        run_trial(session, trial, 1)
    lines = (place.root / "records.jsonl").read_text().splitlines()
    assert not breaches(json.loads(lines[-1])), "docs/schema/record.schema.json"
    assert str(place.root) not in Path("/proc/self/mountinfo").read_text()
    assert servers_of(place) == []
    return list(read_records(place.root / "records.jsonl"))[-1]


def test_a_command_reads_its_copies_from_the_volume(host: Place) -> None:
    record = run_here(host, trial_of(host, READS, "big"))
    assert (record.outcome, record.error) == ("ok", None)
    external = known(record.cage.external)
    assert external["path"]["kind"] == "fuse-loop"
    assert external["account"]["total_read_ops"] >= 200
    assert known(record.device.name).startswith("loop")
    assert known(record.measured).seconds >= 1.9, "200 reads at 100 per second"
    [limit] = judge_limits(record)
    assert (limit.property, limit.verdict) == ("IOReadIOPSMax", "enforced")
    assert (host.copies / "big").exists(), "the original is in its place again"


@pytest.mark.slow
def test_data_of_other_trials_go_when_a_volume_has_no_room(host: Place) -> None:
    for size_mib in (420, 400):  # together they do not fit the volume, of 1 GiB
        data = Dataset(size_mib * 2**20)
        record = run_here(host, replace(trial_of(host, "true"), dataset=data, files=1))
        assert (record.outcome, record.error) == ("ok", None)


def sockets_of(pid: int) -> tuple[set[str], list[str]]:
    """Return the inodes of a process's sockets, and the paths of those that are unix sockets."""
    links = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:")}
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    unix = {row[6]: row[7] for row in rows if len(row) > 7 and row[6] in inodes}
    return inodes - unix.keys(), list(unix.values())


def test_sockets_of_a_volume_are_in_the_spool(host: Place) -> None:
    """They are unix sockets, and its server has no other."""
    found: list[tuple[set[str], list[str]]] = []
    modes: list[int] = []

    def look() -> None:
        wait_until(lambda: bool(servers_of(host)))
        [pid] = servers_of(host)
        wait_until(lambda: sockets_of(pid)[1] != [])
        found.append(sockets_of(pid))
        modes.extend(Path(path).stat().st_mode for path in found[0][1])

    looking = threading.Thread(target=look)
    looking.start()
    record = run_here(host, trial_of(host, READS, "big"))
    looking.join()
    assert (record.outcome, record.error) == ("ok", None)
    [(others, paths)] = found
    assert others == set()
    assert modes
    assert [mode for mode in modes if mode & 0o022] == [], "a connection needs the right to write"
    assert [path for path in paths if not Path(path).is_relative_to(host.spool.resolve())] == []


def test_a_file_elsewhere_is_refused(host: Place) -> None:
    other = host.root / "elsewhere"
    other.write_bytes(os.urandom(2**20))
    record = run_here(host, trial_of(host, "true", str(other)))
    assert record.outcome == "requirement_missed"
    assert "elsewhere is not on the simulated volume" in (record.error or "")


def test_a_server_that_is_killed_while_the_trial_runs(host: Place) -> None:
    """The command ignores its error and goes on: the trial has failed, whatever it answers."""
    control = host.spool / "volume" / CONTROL_SOCKET
    killed = threading.Event()

    def kill_when_it_reads() -> None:
        wait_until(lambda: reads_of(control) > 20, 60)
        [pid] = servers_of(host)
        os.kill(pid, signal.SIGKILL)
        killed.set()

    killer = threading.Thread(target=kill_when_it_reads)
    killer.start()
    record = run_here(host, trial_of(host, f"{READS} || sleep 0.1", "big"))
    killer.join()
    assert killed.is_set()
    assert record.outcome == "failed"
    assert "the simulated volume ended" in (record.error or "")


def reads_of(control: Path) -> int:
    """Return the reads of the measured part; 0 before it begins."""
    try:
        limits = send_command(control, {"in_force": True})["in_force"]["limits"]
        counted = send_command(control, {"account": True})
    except HostError:
        return 0
    return int(counted["total_read_ops"]) if limits else 0


def servers_of(place: Place) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if words.startswith(os.fsencode(place.spool / "bin" / FUSE_PROGRAM)):
            found.append(int(path.parent.name))
    return found
