"""Events of a playbook as results: Ansible runs on this machine and changes nothing."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pagecage import ansible
from pagecage.ansible import HostResult, Playbook, PlaybookRun, TaskEvent, message_of, run_to_end
from pagecage.errors import HostError
from tests.tree import ROOT

IGNORED = {
    "name": "Fail, and go on",
    "ansible.builtin.fail": {"msg": "expected"},
    "ignore_errors": True,
}
CHANGES = {"name": "Change", "ansible.builtin.command": "true", "changed_when": True}
FAILS = {
    "name": "Fail",
    "ansible.builtin.fail": {"msg": "it is {{ item }}. Fix: make {{ item }}"},
    "loop": ["a", "b"],
}
COMMAND = {
    "name": "Command",
    "ansible.builtin.command": {"argv": ["sh", "-c", "echo first; echo why >&2; exit 3"]},
}


def playbook(top: Path, *tasks: dict[str, Any], hosts: tuple[str, ...] = ("here",)) -> Playbook:
    (top / "ansible").mkdir()
    for name in (".venv-ansible", "ansible/ansible.cfg"):
        (top / name).symlink_to(ROOT / name)
    local = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
    }
    (top / "hosts.json").write_text(json.dumps({"all": {"hosts": dict.fromkeys(hosts, local)}}))
    plays = [{"name": "Play", "hosts": "all", "gather_facts": False, "tasks": [*tasks]}]
    (top / "ansible/it.yml").write_text(json.dumps(plays))
    return Playbook(top, "it.yml", top / "hosts.json", top / "log")


@dataclass(frozen=True)
class Played:
    """Results of a playbook by host, its events, and its log."""

    ends: Mapping[str, HostResult]
    events: list[TaskEvent]
    log: Path


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """One playbook that ends differently on each of three hosts."""
    top, reported = tmp_path_factory.mktemp("played"), list[TaskEvent]()
    on: dict[str, list[dict[str, Any]]] = {
        "whole": [IGNORED, CHANGES],
        "failing": [CHANGES, FAILS],
        "saying": [COMMAND],
    }
    tasks = [
        {**task, "when": f"inventory_hostname == '{host}'"}
        for host, each in on.items()
        for task in each
    ]
    ends = run_to_end(playbook(top, *tasks, hosts=tuple(on)), reported.append)
    return Played(ends, reported, top / "log/it.log")


def test_a_failure_that_was_expected_stops_nothing(played: Played) -> None:
    assert played.ends["whole"] == HostResult(1, None)
    reported = [
        (event.task, event.outcome, event.changed)
        for event in played.events
        if event.host == "whole"
    ]
    assert reported == [("Fail, and go on", "failed", False), ("Change", "ok", True)]
    assert played.ends["whole"].error(played.log) is None


def test_a_failure_is_a_sentence_and_its_mend(played: Played) -> None:
    error = played.ends["failing"].error(played.log)
    assert error is not None
    assert (played.ends["failing"].changed, error.message, error.hint) == (
        1,
        "failing: it is a",
        "make a",
    )


def test_a_command_that_fails_is_told_by_its_last_word(played: Played) -> None:
    error = played.ends["saying"].error(played.log)
    assert error is not None
    assert (error.message, error.hint) == ("saying: why", f"read {played.log} (task: Command)")


def test_a_playbook_that_cannot_begin_is_told_by_ansibles_reason(tmp_path: Path) -> None:
    broken = playbook(tmp_path, {"name": "Wrong", "no_such_module": {}})
    with pytest.raises(HostError, match=r"it.yml could not start: .*no_such_module") as caught:
        run_to_end(broken)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"msg": "plain"}, "plain"),
        ({"msg": "two\n lines"}, "two lines"),
        ({"msg": "non-zero return code", "stderr": "a\nb\n"}, "b"),
        ({"msg": "non-zero return code", "stdout": "c\n"}, "c"),
        ({"msg": "MODULE FAILURE: see", "module_stderr": "x\nSyntaxError: y"}, "SyntaxError: y"),
        ({"msg": "items", "results": [{"msg": "fine"}, {"failed": True, "msg": "not"}]}, "not"),
        ({}, "it gave no reason"),
    ],
)
def test_the_message_of_a_result(result: dict[str, Any], message: str) -> None:
    assert message_of(result) == message


def test_an_ansible_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ansible, "TERMINATION_SECONDS", 0.2)
    program = tmp_path / ".venv-ansible/bin/ansible-playbook"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\ntrap '' TERM\necho begun\nwhile :; do sleep 0.1; done\n")
    program.chmod(0o755)
    endless = PlaybookRun(Playbook(tmp_path, "it.yml", tmp_path, tmp_path / "log"), detached=True)
    assert endless._process.stdout is not None
    assert endless._process.stdout.readline() == b"begun\n"
    endless.end()
    assert endless._process.returncode == -signal.SIGKILL
    endless._process.stdout.close()
