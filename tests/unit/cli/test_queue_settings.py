"""The question before settings of the disk under / change, and the way without a terminal."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagecage.cli import enforcement
from pagecage.cli.enforcement import ask_before_queue_settings
from pagecage.errors import PagecageError
from pagecage.hosts.local import LocalHost
from pagecage.planning.plan import Plan
from pagecage.runner.resource_needs import needed_disk_bytes
from tests.builders.facts import facts
from tests.builders.plans import plan_of


class Asked:
    """What was asked and told, at a terminal with an answer, or without one (None)."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, answer: bool | None) -> None:
        self.questions: list[str] = []
        self.said: list[str] = []
        self.host = LocalHost(folder)
        patch.setattr(
            LocalHost, "facts", lambda _: facts(disk={"maj_min": "254:0", "node": "/dev/vda"})
        )
        patch.setattr(enforcement, "_disk_of_root", lambda: "254:0")
        patch.setattr(sys.stdin, "isatty", lambda: answer is not None)
        patch.setattr(enforcement, "confirmed", self._confirmed)
        self._answer = answer

    def _confirmed(self, question: str) -> bool:
        self.questions.append(question)
        return bool(self._answer)

    def about(self, plan: Plan, *, yes: bool = False) -> dict[str, Any] | None:
        ask_before_queue_settings(plan, self.host, yes, self.said.append)
        return self.host.own_disk


def test_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = Asked(monkeypatch, tmp_path, answer=True)
    assert asked.about(plan_of()) is None
    assert asked.questions[0].startswith("Set read_ahead_kb of ")
    with pytest.raises(PagecageError, match="not confirmed"):
        Asked(monkeypatch, tmp_path, answer=False).about(plan_of())


@pytest.mark.parametrize("own", [True, False])
def test_with_nobody_to_ask_the_data_get_a_disk_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: bool
) -> None:
    monkeypatch.setattr(LocalHost, "can_make_disk", lambda _: own)
    asked, plan = Asked(monkeypatch, tmp_path, answer=None), plan_of()
    made = asked.about(plan)
    assert asked.questions == []
    if own:
        assert made is not None
        assert made["file"] == f"{tmp_path}/disk.img"
        assert made["size_bytes"] > needed_disk_bytes(plan.trials)
        assert asked.said[0].startswith(
            f"disk: {tmp_path}/disk.img by loop, which leaves read_ahead_kb"
        )
    else:
        assert made is None
        assert "will be changed during each trial and restored" in asked.said[0]


def test_files_of_the_user_stay_on_their_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(LocalHost, "can_make_disk", lambda _: True)
    plan = plan_of()
    replayed = replace(plan, document={**plan.document, "replay": {"carried": []}})
    assert Asked(monkeypatch, tmp_path, answer=None).about(replayed) is None


def test_a_plan_that_was_confirmed_or_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = Asked(monkeypatch, tmp_path, answer=None)
    assert asked.about(plan_of(), yes=True) is None
    plan = plan_of()
    unset = tuple(replace(trial, read_ahead_kb=None) for trial in plan.trials)
    assert asked.about(replace(plan, trials=unset)) is None
    assert asked.said == []
