"""A replay by controller and real agent: streams, copied files, and final failures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagecage import terminal
from pagecage.cli.output import StdioRelay
from pagecage.errors import HostError
from pagecage.hosts.agent_package import AgentPackage, agent_bytes
from pagecage.model.cage import Cage
from pagecage.model.json_codec import Json
from pagecage.model.plan import Plan
from pagecage.model.record import Record, read_records
from pagecage.model.trial import CommandSpec, Dataset, TrialData
from pagecage.planning.plan import PlanOptions, make_plan
from pagecage.planning.replay import SIZE, ReplaySpec, make_experiment
from pagecage.process import PIPE, spawn
from pagecage.runner.campaign import ATTEMPTS, Campaign, RunSummary
from pagecage.runner.resource_needs import resource_needs
from pagecage.runner.run_folder import RunFolder
from pagecage.runner.uploads import find_uploads, translate_command, uploads_to_json
from pagecage.units import MIB
from tests.builders.known import known
from tests.builders.plans import HARNESS
from tests.fake_host.hosts import on_fakes
from tests.fake_host.machine import Machine, make_dataset

CAGES = {name: Cage(name, {}) for name in ("uncaged", "tight")}


@pytest.fixture
def package(machine: Machine) -> AgentPackage:
    agent = machine.root / "agent.pyz"
    agent.write_bytes(agent_bytes())
    return AgentPackage(agent, (), "0" * 64)


def plan_of(
    *argv: str,
    command: CommandSpec,
    repeats: int = 1,
    carried: tuple[str, ...] = (),
    place: str = "",
    cache: str = "any",
    data: TrialData | None = None,
) -> Plan:
    """Return the plan of a replay in one cage."""
    made = find_uploads(carried)
    here = replace(command, is_literal=True, directory=place or command.directory)
    words = translate_command(argv, made, place)
    asked = ReplaySpec(argv, words, here, ("tight",), cache, (), data=data)
    more: Json = {"carried": uploads_to_json(made), "directory": place}
    more |= {"restored": data.copied_to} if data else {}
    choices = PlanOptions(SIZE, "asked for", repeats, 7, "vm", "never")
    run_id = f"20261121T100000Z-{asked.name}-vm"
    return make_plan(
        run_id, make_experiment(asked), CAGES, choices, "pagecage replay", HARNESS, more
    )


class Replays:
    """Replays on the fake machine, with a file in place of this process's standard output."""

    def __init__(self, machine: Machine, package: AgentPackage, folder: Path) -> None:
        self.machine, self.package, self._path = machine, package, folder / "stdout"
        self.stdout = os.open(self._path, os.O_WRONLY | os.O_CREAT)

    def printed(self) -> bytes:
        return self._path.read_bytes()

    def carry_out(
        self, plan: Plan, listener: Callable[[Mapping[str, Any]], None] = lambda _: None
    ) -> tuple[RunSummary, list[Record]]:
        folder = RunFolder.create(self.machine.root / "runs", plan)
        host, relay = on_fakes(self.package.agent, self.machine), StdioRelay(listener, self.stdout)
        summary = Campaign(host, plan, folder, self.package, relay).run()
        return summary, list(read_records(folder.records_path))


@pytest.fixture
def replays(machine: Machine, package: AgentPackage, tmp_path: Path) -> Iterator[Replays]:
    made = Replays(machine, package, tmp_path)
    yield made
    os.close(made.stdout)


def stdin(monkeypatch: pytest.MonkeyPatch, descriptor: int) -> None:
    monkeypatch.setattr(terminal, "_STDIN", descriptor)


BOTH = CommandSpec(streams_output=True, takes_input=True)


def test_a_pipe_goes_through_the_program(
    machine: Machine, replays: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The input has several pieces and is not text."""
    sent = os.urandom(300_000)
    (machine.root / "sent").write_bytes(sent)
    with spawn(["cat", machine.root / "sent"], stdout=PIPE) as cat:
        stdin(monkeypatch, known(cat.stdout).fileno())
        summary, [record] = replays.carry_out(plan_of("cat", command=BOTH))
    assert (summary, record.outcome) == (RunSummary(1, 0), "ok")
    assert replays.printed() == sent
    assert machine.left() == []


def test_each_trial_has_all_of_a_file(
    machine: Machine, replays: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.root / "sent").write_bytes(b"x" * 100_000)
    words = ("sh", "-c", 'test "$(wc -c)" = 100000')
    counted = plan_of(*words, command=CommandSpec(takes_input=True), repeats=3)
    with (machine.root / "sent").open("rb") as file:
        stdin(monkeypatch, file.fileno())
        summary, records = replays.carry_out(counted)
    assert summary == RunSummary(3, 0)
    assert [record.outcome for record in records] == ["ok"] * 3
    assert replays.printed() == b""


def test_a_program_that_reads_nothing_is_not_waited_for(
    replays: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The input is a pipe without a writer, as at a terminal."""
    silent, writer = os.pipe()
    stdin(monkeypatch, silent)
    summary, [record] = replays.carry_out(plan_of("echo", "done", command=BOTH))
    assert (summary, record.outcome, replays.printed()) == (RunSummary(1, 0), "ok", b"done\n")
    os.close(writer)
    os.close(silent)


def test_a_failure_of_its_own_is_not_tried_again(replays: Replays) -> None:
    plan = plan_of("sh", "-c", "echo ran; exit 3", command=replace(BOTH, takes_input=False))
    summary, records = replays.carry_out(plan)
    assert summary == RunSummary(1, 0)
    [record] = records
    assert (record.attempt, record.outcome, record.exit.status) == (1, "failed", 3)
    assert replays.printed() == b"ran\n"


@pytest.mark.parametrize(("streams_output", "tries"), [(True, 1), (False, ATTEMPTS)])
def test_a_disturbed_program_with_streamed_output_is_not_repeated(
    machine: Machine, replays: Replays, streams_output: bool, tries: int
) -> None:
    """The program reads a cold file, but its slice is charged for no page of it."""
    path = make_dataset(machine.data, Dataset(16 * MIB))
    command = CommandSpec((str(path),), streams_output=streams_output)
    words = ("sh", "-c", 'cat "$1" >/dev/null; echo ran', "sh", str(path))
    plan = plan_of(*words, command=command, cache="cold")
    summary, records = replays.carry_out(plan)
    assert summary == RunSummary(0, 1)
    assert [record.outcome for record in records] == ["not_prepared"] * tries
    assert replays.printed() == (b"ran\n" if streams_output else b"")


def test_files_are_carried_and_put_away(machine: Machine, replays: Replays, tmp_path: Path) -> None:
    folder = tmp_path / "with a space"
    (folder / "below").mkdir(parents=True)
    (folder / "below/file").write_text("carried\n")
    (folder / "link").symlink_to("below/file")
    place = str(machine.data / "replay")
    Path(place, "earlier").mkdir(parents=True)
    command = replace(BOTH, takes_input=False)
    script = 'cat "$1/link" && pwd && test ! -e earlier'
    words = ("sh", "-c", script, "sh", str(folder))
    plan = plan_of(*words, command=command, carried=(str(folder),), place=place)
    summary, [record] = replays.carry_out(plan)
    assert (summary, record.outcome) == (RunSummary(1, 0), "ok"), record.error
    assert replays.printed().decode() == f"carried\n{place}\n"
    assert not Path(place).exists()


def test_copies_that_the_program_writes_to_are_restored(
    machine: Machine, replays: Replays, tmp_path: Path
) -> None:
    """It runs in the directory of the copies, where it leaves a file too."""
    db = tmp_path / "db"
    db.mkdir()
    (db / "rows").write_text("first\n")
    base = machine.data / "replay-restored"
    (base / "data/earlier").mkdir(parents=True)
    script = 'test "$(ls; cat "$1/rows")" = "db\nfirst" && echo more >>"$1/rows" && touch left'
    plan = plan_of(
        *("sh", "-c", script, "sh", str(db)),
        command=CommandSpec(data_paths=(f"{base}/data/db",)),
        repeats=3,
        carried=(str(db),),
        place=f"{base}/data",
        cache="cold",
        data=TrialData(writes=True, size_bytes=6, copied_to=str(base)),
    )
    summary, records = replays.carry_out(plan)
    assert (summary, [r.error for r in records]) == (RunSummary(3, 0), [None] * 3)
    assert [(record.data.restored or {})["changed_files"] for record in records] == [1, 1, 1]
    assert (db / "rows").read_text() == "first\n"
    assert not base.exists()


def test_uploads_need_free_space(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 1_000_000)

    def data_bytes(*carried: str, data: TrialData | None = None) -> int:
        plan = plan_of("true", command=CommandSpec(), carried=carried, place="/d", data=data)
        return resource_needs(plan).data_bytes

    big = str(tmp_path / "big")
    assert data_bytes(big) - data_bytes() == 1_000_000
    data = TrialData(writes=True, size_bytes=1_000_000, copied_to="/d")
    assert data_bytes(big, data=data) - data_bytes() == 2_000_000


def test_a_failed_upload_is_reported(machine: Machine, replays: Replays, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (machine.root / "a-file").touch()
    place = str(machine.root / "a-file/replay")
    plan = plan_of("true", command=CommandSpec(), carried=(str(tmp_path / "file"),), place=place)
    with pytest.raises(HostError, match="--copy could not write"):
        replays.carry_out(plan)


def test_ctrl_c_ends_the_program_and_leaves_nothing(machine: Machine, replays: Replays) -> None:
    plan = plan_of("sleep", "60", command=CommandSpec(streams_output=True))

    def interrupt(event: Mapping[str, Any]) -> None:
        if event["event"] == "go":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replays.carry_out(plan, interrupt)
    folder = RunFolder(machine.root / "runs" / plan.run_id)
    [record] = read_records(folder.records_path)
    assert (record.outcome, record.phase) == ("interrupted", "run")
    assert not record.is_final
    assert machine.left() == []
