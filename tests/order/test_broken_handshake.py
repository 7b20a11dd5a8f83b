"""Workloads that break the handshake: one sentence and one outcome each, on a fake machine."""

from __future__ import annotations

import pytest

from pagecage.model.trial import Workload
from tests.builders.trial_runs import carry_out
from tests.fake_host.machine import LIGHT, WORKLOADS, Machine, make_trial

BREACHES = {
    "dies before ready": "it ended with status 3 before `ready`",
    "other version": (
        "it speaks version 2 of the handshake, and this pagecage speaks version 1: take the library"
        " from `pagecage init --template`"
    ),
    "starts by itself": "it printed `sample` without waiting for `go`",
    "garbage before ready": (
        "it printed a line that is not a JSON object: 'hello, I am a program'"
    ),
    "ready twice": "it printed `ready` twice",
    "end twice": "it printed `end` twice",
    "unknown message": (
        "it printed a message of type 'progress', and the handshake has only ready, sample,"
        " stopped, end"
    ),
    "garbage": r"it printed a line that is not a JSON object: '\x00ÿ{ 50 %'",
    "not a number": "it printed NaN, which is not a number in JSON; null means none",
    "infinite response": "it printed Infinity, which is not a number in JSON; null means none",
    "overflow": "it printed 1e999, which is too large for a double",
    "words for numbers": "its `end` has seconds 'soon', not an amount",
    "half a line": "it ended by signal 6 before `end`",
}


def broken(way: str) -> Workload:
    return Workload("breaks_the_handshake.py", (way,))


@pytest.mark.parametrize(("way", "sentence"), BREACHES.items(), ids=BREACHES)
def test_a_breach_is_a_failure_with_one_sentence(machine: Machine, way: str, sentence: str) -> None:
    record = carry_out(machine, make_trial(workload=broken(way), cage=LIGHT, collectors=()))
    assert (record.outcome, record.error) == ("failed", sentence)
    assert record.response == {}
    assert machine.left() == []


def test_one_that_is_never_ready_times_out(machine: Machine) -> None:
    trial = make_trial(
        workload=broken("never ready"), cage=LIGHT, collectors=(), timeout_seconds=1.0
    )
    record = carry_out(machine, trial)
    assert (record.outcome, record.error) == ("timed_out", "not ready after 1 s")


def test_a_program_of_the_users_own_is_found_by_its_path(machine: Machine) -> None:
    """It is started from its path, and not from the folder of pagecage's workloads."""
    own = machine.root / "ours/mine"
    trial = make_trial(workload=Workload(str(own), ()), cage=LIGHT, collectors=())
    record = carry_out(machine, trial)
    assert record.outcome == "requirement_missed"
    assert record.error == f"there is no executable program '{own}'"
    own.parent.mkdir()
    own.symlink_to(WORKLOADS / "good.py")
    record = carry_out(machine, trial)
    assert (record.outcome, record.error) == ("ok", None)
    assert record.workload.argv == (str(own),)


def test_one_that_follows_it_is_a_data_point(machine: Machine) -> None:
    record = carry_out(machine, make_trial(workload=broken("not at all"), cage=LIGHT))
    assert (record.outcome, record.error) == ("ok", None)
    assert record.response["read_seconds"] == 0.5
