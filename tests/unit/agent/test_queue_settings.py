"""Queue settings: saved before a change and restored afterwards, in spite of failures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagecage.agent import settings
from pagecage.agent.settings import QueueSettingsJournal, chosen
from pagecage.errors import HostError
from pagecage.linux.block_device import Disk
from tests.fake_host.machine import MAJ_MIN, NODE, Machine

DISK = Disk("fakedisk", MAJ_MIN, NODE, "ext4", "/", ("fakedisk",))


@pytest.fixture
def journal(machine: Machine) -> QueueSettingsJournal:
    return QueueSettingsJournal(machine.spool)


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("values", [("128",), ("128", "64", "0")])
def test_the_first_value_is_restored_also_of_a_killed_agent(
    machine: Machine, journal: QueueSettingsJournal, values: tuple[str, ...], is_killed: bool
) -> None:
    for value in values:
        journal.set(DISK, "read_ahead_kb", value)
        assert machine.read_ahead_kb() == value
    assert (QueueSettingsJournal(machine.spool) if is_killed else journal).restore() == []
    assert machine.read_ahead_kb() == "256"
    assert machine.left() == []
    assert not list(Path(machine.spool).glob("*.json"))


def test_a_value_that_is_there_already_is_left_alone(
    machine: Machine, journal: QueueSettingsJournal
) -> None:
    journal.set(DISK, "read_ahead_kb", "256")
    assert machine.log_lines() == []
    assert machine.left() == []


def test_the_journal_is_written_before_the_change(
    machine: Machine, journal: QueueSettingsJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(settings, "write_queue_setting", killed)
    with pytest.raises(KeyboardInterrupt):
        journal.set(DISK, "read_ahead_kb", "128")
    saved = json.loads((machine.spool / "queue-settings.json").read_text())
    assert saved == {"fakedisk": {"read_ahead_kb": "256"}}


def test_a_missing_disk_is_reported_and_dropped(
    machine: Machine, journal: QueueSettingsJournal
) -> None:
    saved = {"sdz": {"read_ahead_kb": "128"}, "fakedisk": {"read_ahead_kb": "512"}}
    (machine.spool / "queue-settings.json").write_text(json.dumps(saved))
    [failure] = journal.restore()
    assert failure.startswith("sdz's read_ahead_kb could not be put back to 128")
    assert machine.read_ahead_kb() == "512"
    assert journal.restore() == []


@pytest.mark.parametrize("text", ["", "{", "\x00"])
def test_an_incomplete_journal_is_ignored(
    machine: Machine, journal: QueueSettingsJournal, text: str
) -> None:
    (machine.spool / "queue-settings.json").write_text(text)
    assert journal.restore() == []


def test_a_choice_is_its_bracketed_word(machine: Machine, journal: QueueSettingsJournal) -> None:
    assert chosen("none [mq-deadline] kyber") == "mq-deadline"
    assert (chosen("128"), chosen(None)) == ("128", None)
    journal.set(DISK, "scheduler", "mq-deadline")
    journal.restore()
    assert (machine.sys / "block/fakedisk/queue/scheduler").read_text() == "none"


def test_a_queue_setting_that_cannot_be_set_is_an_error(journal: QueueSettingsJournal) -> None:
    with pytest.raises(HostError, match="cannot be set to 1"):
        journal.set(Disk("sdz", "8:0", "/dev/sdz", "ext4", "/"), "read_ahead_kb", "1")


def test_a_setting_that_could_not_be_restored_is_tried_again(
    machine: Machine, journal: QueueSettingsJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.set(DISK, "read_ahead_kb", "128")

    def full(*_: object) -> None:
        raise HostError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(settings, "write_queue_setting", full)
        assert len(journal.restore()) == 1
    assert journal.restore() == []
    assert machine.read_ahead_kb() == "256"
    assert machine.left() == []


def test_a_journal_that_cannot_be_written_keeps_its_first_entry(
    machine: Machine, journal: QueueSettingsJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.set(DISK, "read_ahead_kb", "128")

    def killed(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            journal.set(DISK, "nr_requests", "64")
    journal.restore()
    assert machine.read_ahead_kb() == "256"
