"""Prepared data on the fake machine: made once, restored, and never taken half made."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent import prepared_data
from pagecage.agent.session import run_trial, write_custom_programs
from pagecage.agent.storage import Storage, TrialDisk
from pagecage.errors import HostError
from pagecage.hosts.agent_package import AgentPackage
from pagecage.linux import processes
from pagecage.linux.child_processes import Interrupted, Interruption
from pagecage.model.trial import CommandSpec, Trial, TrialData, Workload
from tests.builders.command_trials import bare_trial
from tests.builders.known import known
from tests.builders.trial_runs import carry_out, last_record
from tests.builders.waiting import wait_until
from tests.fake_host.hosts import StartedAgent, request_line
from tests.fake_host.machine import Machine, frames_of, make_request, make_session, make_trial

PREPARE = ("sh", "-c", 'echo "$1 $2" >"$0/file"; mkdir "$0/sub"', "{data}", "seed", "{seed}")
WORK = 'test "$(cat "$0/file")" = "seed 1" && echo more >>"$0/file" && rmdir "$0/sub"'


def trial_of(data: TrialData, work: str = WORK, **changes: Any) -> Trial:
    """Return a trial that reads its data and writes to them."""
    command = CommandSpec(data_paths=("{data}",))
    workload = Workload("sh", ("-c", work, "{data}"), "command", command=command)
    return bare_trial(workload, cache="cold", data=data, **changes)


WRITTEN = trial_of(TrialData(PREPARE, writes=True))


def prepared(machine: Machine) -> list[str]:
    """Return the keys of the data that are there."""
    folder = machine.data / "prepared"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_data_are_made_once_and_restored_before_each_trial(machine: Machine) -> None:
    out = io.BytesIO()
    session = make_session(machine, out, WRITTEN)
    records = [carry_out(machine, WRITTEN, session) for _ in range(3)]
    assert [record.outcome for record in records] == ["ok"] * 3, [r.error for r in records]
    assert [record.data.made_by is None for record in records] == [False, True, True]
    assert [(one.data.restored or {})["changed_files"] for one in records] == [1, 1, 1]
    assert all(record.cache.resident_bytes_before == 0 for record in records)
    assert prepared(machine) == [records[0].data.key]
    frames = frames_of(out.getvalue())
    [notice] = [frame["text"] for frame in frames if frame.get("event") == "notice"]
    assert notice.startswith("7 B of data are restored before each trial, by copy; the first")
    assert machine.left() == []


def test_a_trial_may_remove_its_data(machine: Machine) -> None:
    trial = trial_of(TrialData(PREPARE, writes=True), 'cat "$0/file" && rm -r "$0"')
    records = [carry_out(machine, trial) for _ in range(2)]
    assert [(record.outcome, record.error) for record in records] == [("ok", None)] * 2


def test_another_seed_or_program_makes_other_data(machine: Machine) -> None:
    trial = trial_of(TrialData(("{programs}/make", "{data}")), "cat $0/file")
    keys = []
    for text in ("#!/bin/sh\necho 1 >$1/file\n", "#!/bin/sh\necho 2 >$1/file\n"):
        for seed in (1, 2):
            data = replace(trial.data or TrialData(), seed=seed)
            session = make_session(machine, io.BytesIO(), trial)
            request = replace(session.request, own_programs={"make": text, "unused": text})
            write_custom_programs(request)
            session = replace(session, request=request)
            record = carry_out(machine, replace(trial, data=data), session)
            assert (record.outcome, record.error) == ("ok", None)
            keys.append(record.data.key)
    assert len(set(keys)) == 4
    unused = replace(request, own_programs={**request.own_programs, "unused": "other"})
    again = carry_out(machine, replace(trial, data=data), replace(session, request=unused))
    assert (again.data.key, again.data.made_by) == (keys[-1], None)


def test_a_program_is_given_the_datasets(machine: Machine) -> None:
    data = TrialData(("cp", "{file}", "{data}/copy"))
    trial = trial_of(data, 'test -s "$0/copy"', dataset=make_trial().dataset)
    record = carry_out(machine, trial)
    assert (record.outcome, record.error) == ("ok", None)


def test_data_that_no_trial_may_write_to_are_checked(machine: Machine) -> None:
    trial = trial_of(TrialData(PREPARE))
    assert carry_out(machine, trial).outcome == "ok"
    record = carry_out(machine, trial)
    assert (record.outcome, record.phase) == ("not_prepared", "data")
    assert "was written to: file; set writes = true" in (record.error or "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("sh", "-c", "echo begun; echo no table >&2; exit 3"), "sh, which makes the data, ended"),
        (("sh", "-c", "echo no table; kill -9 $$"), "ended by signal 9: no table"),
        (("sh", "-c", "echo no table; exec sleep 60"), "had not made the data after 1 s: no table"),
        (("sh", "-c", "echo no table; setsid sleep 60 &"), "lived on: no table"),
        (("sh", "-c", "echo no table; sleep 60 &"), "lived on: no table"),
    ],
)
def test_a_program_that_fails_leaves_its_last_line_and_no_data(
    machine: Machine, words: tuple[str, ...], says: str
) -> None:
    data = TrialData((*words, "{data}"), writes=True, timeout_seconds=1.0)
    record = carry_out(machine, trial_of(data))
    assert (record.outcome, record.phase) == ("not_prepared", "data")
    assert says in (record.error or "")
    assert (record.error or "").endswith(": no table")
    assert prepared(machine) == []
    assert machine.left() == []


@pytest.mark.parametrize("data", [TrialData(("no-such", "{data}")), TrialData(PREPARE, ("gone",))])
def test_a_missing_program_is_a_requirement(machine: Machine, data: TrialData) -> None:
    record = carry_out(machine, trial_of(data))
    assert (record.outcome, record.phase) == ("requirement_missed", "data")
    assert "there is no program" in (record.error or "")


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device", "/data/x")


def short(*_: object) -> None:
    raise HostError("a copy of 7 B does not fit /data (0 B free)")


@pytest.mark.parametrize(
    ("where", "failure", "says"),
    [
        ("DataPreparation.make", full, "/data/x: No space left on device"),
        ("save", full, "/data/x: No space left on device"),
        ("require_room", short, "does not fit"),
        ("restore", full, "/data/x: No space left on device"),
        ("restore", short, "does not fit"),
    ],
)
def test_a_full_disk_is_told_and_repaired_by_room(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    failure: Callable[..., None],
    says: str,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(f"pagecage.agent.prepared_data.{where}", failure)
        record = carry_out(machine, WRITTEN)
    assert (record.outcome, record.phase) == ("not_prepared", "data")
    assert says in (record.error or "")
    assert len(prepared(machine)) == (1 if where == "restore" else 0)
    assert carry_out(machine, WRITTEN).outcome == "ok"


def test_data_that_were_used_longest_ago_make_room(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = [trial_of(TrialData(PREPARE, seed=seed), "true") for seed in (1, 2, 3)]
    keys = [carry_out(machine, trial).data.key for trial in (*trials[:2], trials[0])][:2]
    folder = machine.data / "prepared"

    def has_room_for_two(_: Path, __: int, what: str = "") -> None:
        if len(list(folder.iterdir())) > 2:
            raise HostError(f"{what} does not fit")

    monkeypatch.setattr(prepared_data, "require_room", has_room_for_two)
    out = io.BytesIO()
    record = carry_out(machine, trials[2], out=out)
    assert prepared(machine) == sorted([keys[0] or "", record.data.key or ""])
    assert f"{folder}/{keys[1]}" in out.getvalue().decode()


def test_a_signal_ends_the_program_that_makes_data(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal arrives while the program runs."""
    trial = trial_of(TrialData(("sh", "-c", "exec sleep 60", "{data}")))

    def interrupted(*_: object) -> int:
        raise Interrupted

    monkeypatch.setattr("pagecage.agent.prepared_data.DataPreparation.wait", interrupted)
    session = make_session(machine, io.BytesIO(), trial, interruption=Interruption())
    with pytest.raises(Interrupted):
        run_trial(session, trial, 1)
    assert (last_record(machine).outcome, last_record(machine).phase) == ("interrupted", "data")
    assert prepared(machine) == []
    assert machine.left() == []


def test_half_made_data_of_a_killed_agent_are_made_again(
    machine: Machine, package: AgentPackage
) -> None:
    """Its program goes on writing until the next start ends it."""
    wait = machine.root / "wait"
    wait.touch()
    script = (
        'echo "seed 1" >"$0/file"; mkdir "$0/sub"; touch "$1.begun";'
        ' while [ -e "$1" ]; do touch "$0/half"; sleep 0.01; done'
    )
    data = TrialData(("sh", "-c", script, "{data}", str(wait)), writes=True)
    trial = trial_of(data, f'test ! -e "$0/half" && {WORK}')
    line = request_line(make_request(machine, trial))
    agent = StartedAgent(package, machine, line)
    wait_until((machine.root / "wait.begun").exists, 30)
    os.kill(int(machine.agent_pid.read_text()), 9)
    assert agent.end() == -9
    mark = f"{machine.spool}:prepare"
    assert list(processes._marked(mark, Path("/proc"))), "its program lives on"
    [key] = prepared(machine)
    assert not (machine.data / "prepared" / key / "manifest.json").exists()
    wait.unlink()
    assert StartedAgent(package, machine, line).end() == 0
    record = last_record(machine)
    assert (record.outcome, record.error) == ("ok", None)
    assert record.data.made_by
    assert not list(processes._marked(mark, Path("/proc")))
    assert machine.left() == []


def test_a_disk_made_for_the_trial_gets_a_copy(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = machine.root / "own"
    own.mkdir()
    real = prepared_data.DataPreparation.folders

    def elsewhere(preparation: prepared_data.DataPreparation) -> tuple[Path, Path]:
        base, _ = real(preparation)
        return base, own / "prepared" / base.name

    monkeypatch.setattr(prepared_data.DataPreparation, "folders", elsewhere)
    records = [carry_out(machine, trial_of(TrialData(PREPARE))) for _ in range(2)]
    assert [record.outcome for record in records] == ["ok", "ok"], [r.error for r in records]
    assert (records[0].data.directory or "").startswith(f"{own}/prepared/")
    assert (records[1].data.restored or {})["changed_files"] == 1


def test_a_container_layer_has_no_prepared_data(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = make_storage(machine, "container_layer")
    monkeypatch.setattr("pagecage.agent.phases.prepare_storage", lambda *_: beside)
    record = carry_out(machine, WRITTEN)
    assert (record.outcome, record.phase) == ("requirement_missed", "data")


def make_storage(machine: Machine, kind: str = "data") -> Storage:
    session = make_session(machine, io.BytesIO(), WRITTEN)
    return Storage({"data": TrialDisk(kind, session.disk, machine.data)})


def test_a_workload_with_the_handshake_reads_prepared_data(machine: Machine) -> None:
    """Its files are those of the data, so their cache state is set and measured."""
    workload = Workload("good.py", ("--file", "{data}/file"))
    record = carry_out(machine, bare_trial(workload, cache="cold", data=TrialData(PREPARE)))
    assert (record.outcome, record.error) == ("ok", None)
    assert known(record.workload.argv)[-1] == f"{record.data.directory}/file"
    assert record.cache.file_bytes == len("seed 1\n")
    assert record.cache.resident_bytes_before == 0


def test_a_workload_of_pagecage_may_make_the_data(machine: Machine) -> None:
    """A name in the folder of the workloads counts before one in PATH."""
    data = TrialData(("loads.py", "{data}"))
    record = carry_out(machine, trial_of(data))
    assert record.outcome == "not_prepared"
    assert "loads.py, which makes the data, ended with status" in (record.error or "")
