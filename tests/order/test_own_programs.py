"""A definition's own programs on the host: written before the first trial, and run."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from pagecage.agent.protocol import AnswerQueue, FrameStream
from pagecage.agent.session import serve
from pagecage.linux.child_processes import Interruption
from pagecage.model.record import Record, read_records
from pagecage.model.trial import CommandSpec, Trial, Workload
from tests.builders.command_trials import MEMORY
from tests.fake_host.machine import Machine, make_request, make_trial


def command(program: str, *arguments: str) -> Trial:
    return make_trial(
        workload=Workload(program, arguments, "command", command=CommandSpec()),
        cage=MEMORY,
        collectors=(),
        dataset=None,
        cache="any",
    )


def serve_with(machine: Machine, trial: Trial, programs: dict[str, str]) -> Record:
    """Serve a request of one trial with these programs; return its record."""
    request = replace(make_request(machine, trial), own_programs=programs)
    serve(request, FrameStream(io.BytesIO()), Interruption(), AnswerQueue())
    return list(read_records(machine.records))[-1]


SAYS = {"say": "#!/bin/sh\ncp $1 $2\n", "said": "hello"}


def test_a_program_runs_with_another_as_its_argument(machine: Machine, tmp_path: Path) -> None:
    trial = command("{programs}/say", "{programs}/said", str(tmp_path / "out"))
    record = serve_with(machine, trial, SAYS)
    assert (record.outcome, record.error) == ("ok", None)
    assert record.workload.argv[0] == f"{machine.spool}/programs/say"
    assert record.workload.sha256
    assert (tmp_path / "out").read_text() == "hello"
    assert machine.left() == []


@pytest.mark.parametrize("programs", [{}, {"other": "#!/bin/sh\n"}])
def test_programs_of_an_earlier_request_are_gone(
    machine: Machine, programs: dict[str, str]
) -> None:
    serve_with(machine, command("{programs}/say", "/dev/null", "/dev/null"), SAYS)
    record = serve_with(machine, command("{programs}/say", "/dev/null", "/dev/null"), programs)
    assert record.outcome == "requirement_missed"
    assert f"no program '{machine.spool}/programs/say'" in (record.error or "")
