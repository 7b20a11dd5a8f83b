"""A hostile agent: whatever it sends, nothing outside the run folder changes, the session ends with
a sentence, and the controller's memory stays within its bound.
"""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagecage.errors import EXIT_HOST
from pagecage.model.record import MOST_RECORD_BYTES, read_records
from pagecage.planning.plan import Plan
from pagecage.runner import frame_receiver
from pagecage.runner.frames import BadFrame, parsed_header
from pagecage.runner.run_folder import RunFolder
from tests.builders.campaigns import Run
from tests.builders.hostile_agent import (
    BOOT_ID,
    OUT,
    correct_stream,
    endless,
    grammatical,
    mutations,
    receive,
    tree,
    wire,
)
from tests.builders.plans import plan_of

PLAN = plan_of()
FRAMES = correct_stream(PLAN)
MOST_BYTES = 256 << 20
"""The bound of the controller's memory that docs/FORMAT.md states for one session."""
MOST_BYTES_OF_STREAM = 64 << 20
"""What a stream without a large JSON value takes at most."""
few = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
many = settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))


class Surroundings:
    """A run folder deep in a folder that must not change."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.folder = RunFolder(top / "a/b/home/runs" / PLAN.run_id)
        self.before = self.outside()

    def outside(self) -> dict[str, bytes | str]:
        """Return everything but the contents of facts, records and traces."""
        inside = self.folder.path.relative_to(self.top).as_posix()
        own = (f"{inside}/facts/", f"{inside}/trials/", f"{inside}/records.jsonl")
        return {path: what for path, what in tree(self.top).items() if not path.startswith(own)}

    def check(self) -> None:
        """Nothing around the run changed, and what is in it is a run."""
        assert self.outside() == self.before
        names = {trial.trial_id for trial in PLAN.trials}
        for record in read_records(self.folder.records_path):
            assert record.trial_id in names
            for path, written in record.trace_files.items():
                assert (self.folder.path / path).stat().st_size == written.bytes
        for path in (self.folder.path / "trials").rglob("*"):
            assert not path.is_symlink()
            assert not path.name.endswith(".part")


@pytest.fixture(scope="module")
def makes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    template = tmp_path_factory.mktemp("template")
    RunFolder.create(template / "a/b/home/runs", PLAN)
    (template / "outside").mkdir()
    (template / "outside/kept").write_text("kept")
    return lambda: Surroundings(
        shutil.copytree(template, tmp_path_factory.mktemp("hostile") / "top", symlinks=True)
    )


def refused(makes: Any, raw: bytes) -> str:
    around = makes()
    message = receive(iter([raw]), around.folder, PLAN)
    around.check()
    return str(message)


def test_a_correct_stream_is_received(makes: Any) -> None:
    around = makes()
    assert receive(iter([wire(FRAMES)]), around.folder, PLAN) == ""
    around.check()
    assert len(list(read_records(around.folder.records_path))) == len(PLAN.trials)


FIRST = PLAN.trials[0].trial_id
TRACE = {"frame": "trace", "trial_id": FIRST, "attempt": 1, "name": "sampler.jsonl", "length": 4}
BEGIN = {"frame": "event", "event": "trial", "trial_id": FIRST, "attempt": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"attempt": OUT},
        {"attempt": True},
        {"attempt": 2},
        {"attempt": 1.0},
        {"trial_id": f"x{OUT}"},
        {"trial_id": "r9_other"},
        {"name": f"..{OUT}"},
        {"name": "../sampler.jsonl"},
        {"name": "plan.json"},
        {"name": "sar.bin"},
        {"length": -1},
        {"length": 1 << 62},
        {"more": 1},
    ],
)
def test_a_trace_that_was_not_asked_for_writes_nothing(makes: Any, change: dict[str, Any]) -> None:
    raw = wire([(BEGIN, b""), ({**TRACE, **change}, b"evil")])
    assert "the host sent" in refused(makes, raw)


@pytest.mark.parametrize(
    "begins",
    [
        [{"trial_id": "r9_other"}],
        [{"trial_id": f"r1{OUT}"}],
        [{"attempt": 2}],
        [{"attempt": 0}],
        [{}, {}],
        [{}, {"trial_id": PLAN.trials[1].trial_id}],
    ],
)
def test_a_trial_that_was_not_asked_for_is_refused(
    makes: Any, begins: list[dict[str, Any]]
) -> None:
    assert "the host sent" in refused(makes, wire([({**BEGIN, **one}, b"") for one in begins]))


@pytest.mark.parametrize("boot_id", [OUT, "..", "b", 7, [], BOOT_ID + "/x"])
def test_facts_name_no_other_file(makes: Any, boot_id: object) -> None:
    raw = wire([({"frame": "facts", "facts": {"boot_id": boot_id}}, b"")])
    assert "boot_id" in refused(makes, raw)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("run_id", "another"), ("plan_sha256", "0" * 64), ("host", "other"), ("attempt", 2)],
        *[("treatment", {"a": "b"}), ("trial_id", "r9"), ("position", 7), ("boot_id", OUT)],
        *[("traces", {"sampler": "/etc/passwd"}), ("state_id", "../x"), ("outcome", "splendid")],
        *[("traces", {"sampler": f"trials/{FIRST}.1/sampler.jsonl"}), ("surprise", 1)],
        *[("outer_host", {"before": {}, "after": {}}), ("record_sha256", "0" * 64)],
    ],
)
def test_a_record_of_something_else_is_refused(makes: Any, key: str, value: object) -> None:
    record = next(header["record"] for header, _ in FRAMES if header["frame"] == "record")
    raw = wire([(BEGIN, b""), ({"frame": "record", "record": {**record, key: value}}, b"")])
    around = makes()
    assert "the host sent" in receive(iter([raw]), around.folder, PLAN)
    assert list(read_records(around.folder.records_path)) == []


def test_output_that_no_trial_prints_is_refused(makes: Any) -> None:
    output = ({"frame": "output", "stream": "stdout", "length": 3}, b"out")
    assert "output" in refused(makes, wire([(BEGIN, b""), output]))


def test_a_link_in_the_run_folder_leads_nowhere(makes: Any) -> None:
    around = makes()
    trials = around.folder.path / "trials"
    trials.rmdir()
    trials.symlink_to(around.top / "outside")
    assert "symbolic link" in receive(iter([wire(FRAMES)]), around.folder, PLAN)
    assert list((around.top / "outside").iterdir()) == [around.top / "outside/kept"]


def test_records_that_are_a_link_are_not_written(makes: Any) -> None:
    around = makes()
    around.folder.records_path.symlink_to(around.top / "outside/new")
    assert "symbolic link" in receive(iter([wire(FRAMES)]), around.folder, PLAN)
    assert not (around.top / "outside/new").exists()


def test_text_of_the_agent_moves_no_cursor(makes: Any) -> None:
    heard: list[Any] = []
    event = {"frame": "event", "event": "step", "text": "\x1b[2Jgone\x9b1m\r"}
    around = makes()
    receive(iter([wire([(event, b"")])]), around.folder, PLAN, heard)
    assert heard[0]["text"] == " [2Jgone 1m "


@given(st.data())
@few
def test_mutated_streams(makes: Any, data: st.DataObject) -> None:
    refused(makes, data.draw(mutations(FRAMES)))


@given(st.data())
@few
def test_streams_by_a_grammar(makes: Any, data: st.DataObject) -> None:
    refused(makes, data.draw(grammatical(PLAN)))


@pytest.mark.long
@given(st.data())
@many
def test_5000_mutated_streams(makes: Any, data: st.DataObject) -> None:
    refused(makes, data.draw(mutations(FRAMES)))


@pytest.mark.long
@given(st.data())
@many
def test_5000_streams_by_a_grammar(makes: Any, data: st.DataObject) -> None:
    refused(makes, data.draw(grammatical(PLAN)))


@pytest.fixture
def measured() -> Iterator[None]:
    """Fail if the test took more memory than the bound."""
    tracemalloc.start()
    yield
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < MOST_BYTES


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("line", "instead of a frame|a line of more than"),
        ("nested", "a line of more than"),
        ("noise", "a line of more than"),
        ("longer", "instead of a frame"),
        ("traces", "twice"),
        ("events", "more than"),
        ("phases", "more than"),
    ],
)
@pytest.mark.usefixtures("measured")
def test_a_stream_without_an_end_is_ended(
    makes: Any, kind: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_receiver, "MOST_EVENTS", 5000)
    around = makes()
    found = receive(endless(kind, PLAN), around.folder, PLAN)
    assert tracemalloc.get_traced_memory()[1] < MOST_BYTES_OF_STREAM
    around.check()
    assert any(part in found for part in message.split("|")), found


@pytest.mark.parametrize("unit", [b"{},", b"[],", b"0,", b'{"":0},', b'"\\u0100",'])
@pytest.mark.usefixtures("measured")
def test_the_largest_line_takes_bounded_memory(unit: bytes) -> None:
    """A record of the largest size in JSON whose data are as large as they can be."""
    head, tail = b'{"frame":"record","record":{"a":[', b"0]}}"
    line = head + unit * ((MOST_RECORD_BYTES - 100) // len(unit)) + tail
    assert parsed_header(line)["frame"] == "record"


def test_deep_nesting_is_a_sentence() -> None:
    for line in (b"[" * 500_000, b'{"frame":' * 50_000, b'{"frame":"facts","facts":NaN}'):
        with pytest.raises(BadFrame, match="instead of a frame"):
            parsed_header(line)


def test_a_campaign_ends_an_agent_that_is_not_believed(tmp_path: Path) -> None:
    """It goes on writing; its end of the pipe is closed, and the exit status is the host's."""
    run = Run(tmp_path)
    plan: Plan = run.plan
    agent = tmp_path / "agent"
    begin = {"frame": "event", "event": "trial", "trial_id": plan.trials[0].trial_id, "attempt": 1}
    agent.write_text(
        f"#!/bin/sh\nread request\nprintf '%s\\n' '{json.dumps(begin)}' '{{\"frame\":\"x\"}}'\n"
        f"cat /dev/zero\ntouch {tmp_path}/ended\n"
    )
    agent.chmod(0o755)
    host = run.host()
    host.agent = [str(agent)]
    with pytest.raises(BadFrame, match="instead of a frame") as caught:
        run.go(host)
    assert caught.value.exit_code == EXIT_HOST
    assert host.calls[-1] == "stop"
    assert (tmp_path / "ended").exists()
    assert not list(run.folder.path.rglob("*.part"))
