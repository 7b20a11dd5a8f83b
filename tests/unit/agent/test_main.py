"""An agent that cannot begin: no request, or no thread."""

from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path

import pytest

from pagecage.agent import main as agent
from pagecage.errors import EXIT_HOST, EXIT_INTERRUPTED, NO_THREAD
from pagecage.linux.child_processes import Interruption
from pagecage.process import PIPE, STDOUT, spawn
from tests.fake_host.hosts import request_line
from tests.fake_host.machine import Machine, make_request, make_trial
from tests.tree import ROOT


@pytest.mark.parametrize("request_text", [b"", b'{"run_id": "2026'])
def test_a_request_that_is_cut_off_is_no_traceback(request_text: bytes) -> None:
    program = "import sys; from pagecage.agent.main import main; sys.exit(main(['run']))"
    process = spawn(["python3", "-c", program], stdin=PIPE, stdout=PIPE, stderr=STDOUT, cwd=ROOT)
    out, _ = process.communicate(request_text)
    assert out == b""
    assert process.returncode == EXIT_INTERRUPTED


def test_an_agent_without_a_thread_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError(NO_THREAD)

    (tmp_path / "request").write_bytes(request_line(make_request(machine, make_trial())))
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(Interruption, "listen", lambda _: None)
    before = os.dup(0)
    os.dup2(os.open(tmp_path / "request", os.O_RDONLY), 0)
    try:
        assert agent.main(["run"]) == EXIT_HOST
    finally:
        os.dup2(before, 0)
    assert json.loads(out.buffer.getvalue())["message"] == NO_THREAD
