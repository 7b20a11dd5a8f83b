"""Agents and frames that are broken, cut off or hostile."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagecage.agent.session import run_trial
from pagecage.errors import EXIT_HOST, HostError
from pagecage.hosts.agent_package import AgentPackage
from pagecage.model.plan import Plan
from pagecage.model.record import MOST_RECORD_BYTES, read_records
from pagecage.model.trial import Workload
from pagecage.runner import frame_receiver
from pagecage.runner.frame_receiver import BadFrame, FrameReader, parsed_header
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
from tests.builders.trial_runs import carry_out
from tests.fake_host.hosts import StartedAgent, request_line
from tests.fake_host.machine import (
    LIGHT,
    WORKLOADS,
    Machine,
    frames_of,
    make_request,
    make_session,
    make_trial,
)

PLAN = plan_of()
FRAMES = correct_stream(PLAN)
MOST_BYTES = 256 << 20
"""The bound of the controller's memory that docs/FORMAT.md states for one session."""
MOST_BYTES_OF_STREAM = 64 << 20
"""What a stream without a large JSON value takes at most."""
few = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
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
        for entry in (self.folder.path / "trials").rglob("*"):
            assert not entry.is_symlink()
            assert not entry.name.endswith(".part")


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
def test_the_largest_line_takes_bounded_memory(unit: bytes) -> None:
    """A record of the largest size in JSON whose data are as large as they can be."""
    head, tail = b'{"frame":"record","record":{"a":[', b"0]}}"
    line = head + unit * ((MOST_RECORD_BYTES - 100) // len(unit)) + tail
    before_bytes = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    child = os.fork()  # tracemalloc would take ten times as long
    if child == 0:
        os._exit(parsed_header(line)["frame"] != "record")
    _, status, used = os.wait4(child, 0)
    assert status == 0
    assert used.ru_maxrss * 1024 - before_bytes < MOST_BYTES


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


frames = st.lists(
    st.tuples(st.text(max_size=20), st.just(b""))
    | st.tuples(st.just("own.jsonl"), st.binary(min_size=1, max_size=50))
)
cuts = st.lists(st.integers(1, 40), min_size=1)


@contextmanager
def pipe() -> Iterator[tuple[FrameReader, int]]:
    reading, writing = os.pipe()
    try:
        yield FrameReader(reading), writing
    finally:
        os.close(reading)


def wired(text: str, body: bytes = b"") -> bytes:
    """Return an event with a text, or with a body a trace of that name."""
    event = {"frame": "event", "event": "step", "text": text}
    trace = {"frame": "trace", "trial_id": "r1", "attempt": 1, "name": text, "length": len(body)}
    return json.dumps(trace if body else event).encode() + b"\n" + body


def read_all(reader: FrameReader) -> list[tuple[str, bytes]]:
    """Return text and body of all frames that arrived whole."""
    found, body = [], b""
    while (frame := reader.next()) is not None:
        body += frame.piece
        if not frame.left_bytes:
            found.append((frame.header.get("text", frame.header.get("name", "")), body))
            body = b""
    return found


def in_pieces(content: bytes, sizes: list[int], descriptor: int) -> None:
    """Write in pieces of these sizes, repeatedly, and close."""
    place = number = 0
    while place < len(content):
        size = sizes[number % len(sizes)]
        os.write(descriptor, content[place : place + size])
        place, number = place + size, number + 1
    os.close(descriptor)


@given(frames, cuts)
def test_frames_come_whole_however_they_are_cut(
    sent: list[tuple[str, bytes]], sizes: list[int]
) -> None:
    with pipe() as (reader, writing):
        content = b"".join(wired(text, body) for text, body in sent)
        thread = threading.Thread(target=in_pieces, args=(content, sizes, writing))
        thread.start()
        found = read_all(reader)
        thread.join()
    assert found == sent


@given(st.integers(0, 200))
def test_a_frame_that_is_cut_off_is_dropped_and_those_before_it_kept(cut: int) -> None:
    first, second = wired("a.jsonl", b"body\n{"), wired("b.jsonl", b"x" * 80)
    with pipe() as (reader, writing):
        os.write(writing, first + second[: min(cut, len(second) - 1)])
        os.close(writing)
        found = read_all(reader)
    assert [body for _, body in found] == [b"body\n{"]


@pytest.mark.parametrize(
    "line",
    [b"Welcome!\n", b"12\n", b"[]\n", b"null\n", b"{}\n", b'{"frame": ""}\n', b"\n", b"\xff\xfe\n"],
)
def test_what_is_no_frame_is_named(line: bytes) -> None:
    with pipe() as (reader, writing):
        os.write(writing, wired("before") + line)
        os.close(writing)
        assert reader.next() is not None
        with pytest.raises(HostError, match="instead of a frame") as caught:
            reader.next()
    assert line.strip().decode(errors="replace")[:5] in caught.value.message


@pytest.mark.parametrize("where", ["header", "body"])
def test_an_interruption_amid_a_frame_loses_nothing(where: str) -> None:
    """Ctrl-C arrives while the reader waits for the rest of a record that is larger than a pipe."""
    facts = json.dumps({"frame": "facts", "facts": {"n": "y" * 150_000}}).encode() + b"\n"
    content = facts if where == "header" else wired("a.jsonl", b"y" * 150_000)
    with pipe() as (reader, writing):
        writer = threading.Thread(target=write_with_a_signal, args=(content, writing))
        writer.start()
        with pytest.raises(KeyboardInterrupt):
            reader.next()
        frame = reader.next()
        writer.join()
        assert reader.next() is None
    assert frame is not None
    assert frame.header.get("facts", {}).get("n", "") + frame.piece.decode() == "y" * 150_000


def write_with_a_signal(content: bytes, descriptor: int) -> None:
    """Write two thirds, send Ctrl-C to the main thread, write the rest."""
    part = 100_000
    os.write(descriptor, content[:part])
    time.sleep(0.2)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    time.sleep(0.2)
    os.write(descriptor, content[part:])
    os.close(descriptor)


EVENTS = [
    *("set-property", "start", "fio", "iostat", "sar", "vmtouch", "scope-before", "scope", "sadf"),
    "stop",
]


def serve(package: AgentPackage, machine: Machine) -> tuple[int, bytes]:
    """Run one agent; return its exit status and its frames."""
    request = make_request(machine, make_trial(cage=LIGHT))
    agent = StartedAgent(package, machine, request_line(request))
    streamed = b"" if agent.process.wait(60) < 0 else agent.stdout.read()
    return agent.end(), streamed


@pytest.mark.parametrize("event", EVENTS)
def test_the_next_start_removes_leftovers_of_a_killed_agent(
    machine: Machine, package: AgentPackage, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    monkeypatch.setenv("FAKE_SIGNALS", event)
    monkeypatch.setenv("FAKE_SIGNAL", "KILL")
    assert serve(package, machine)[0] == -9
    assert machine.left() != []
    time.sleep(0.4)  # systemd completes its last job
    monkeypatch.delenv("FAKE_SIGNALS")
    status, streamed = serve(package, machine)
    assert status == 0
    assert machine.left() == []
    assert machine.read_ahead_kb() == "256"
    frames = frames_of(streamed)
    assert frames[-1]["record"]["outcome"] == "ok"
    assert list(read_records(machine.records))[-1].outcome == "ok"


def test_queue_settings_are_restored_after_a_killed_agent(
    machine: Machine, package: AgentPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restored values are those from before the first agent, which was killed."""
    monkeypatch.setenv("FAKE_SIGNALS", "scope")
    monkeypatch.setenv("FAKE_SIGNAL", "KILL")
    serve(package, machine)
    monkeypatch.delenv("FAKE_SIGNALS")
    assert machine.read_ahead_kb() == "128"
    serve(package, machine)
    trial = make_trial(cage=LIGHT, read_ahead_kb=None)
    run_trial(make_session(machine, io.BytesIO(), trial), trial, 1)
    last = list(read_records(machine.records))[-1]
    assert (last.device.queue_settings or {})["read_ahead_kb"] == "256"


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
    never = broken("never ready")
    trial = make_trial(workload=never, cage=LIGHT, collectors=(), timeout_seconds=1.0)
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
