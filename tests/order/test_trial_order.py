"""The order of a trial, also of a service with its load."""

from __future__ import annotations

import io
import json
import mmap
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent import session as agent_session
from pagecage.agent.limits.calibration import Calibrator
from pagecage.agent.responses import STANDARD_RESPONSES, TRACED_RESPONSES
from pagecage.hosts.agent_package import AgentPackage
from pagecage.linux.cgroup import own_cgroup
from pagecage.linux.page_cache import evict, load
from pagecage.linux.systemd import Systemd
from pagecage.model.json_codec import to_json
from pagecage.model.services import MetricPattern, ServiceSpec
from pagecage.model.trial import CommandSpec, Dataset, Trial, Workload
from pagecage.process import identify
from pagecage.units import MIB
from tests.builders.command_trials import bare_trial
from tests.builders.known import known
from tests.builders.service_trials import SERVES
from tests.builders.service_trials import carry_out as serve_load
from tests.builders.trial_runs import carry_out, collector_states
from tests.builders.waiting import wait_until
from tests.fake_host.hosts import StartedAgent, request_line
from tests.fake_host.machine import (
    CAGE,
    DATASET,
    LIGHT,
    MAJ_MIN,
    Machine,
    frames_of,
    make_dataset,
    make_request,
    make_session,
    make_trial,
)
from tests.fixtures.records import make_record

VERIFYING_SECONDS = 0.4  # of verifies.py
UNIT = "pagecage-r1_tight.1.slice"
ORDER = [
    "read_ahead_kb 128",
    f"set-property {UNIT}",
    f"start {UNIT}",
    "iostat begins",
    "sar begins",
    f"scope pagecage-run-r1_tight.1 in {UNIT}: good.py",
    "workload ready",
    "workload go",
    "workload end",
    "workload exits",
    "iostat ends",
    "sadf",
    "sar ends",
    f"stop {UNIT}",
    "read_ahead_kb 256",
]


def without_calibration(lines: list[str]) -> list[str]:
    """Return the log without calibration. Tools that start or end together are sorted."""
    kept = [line for line in lines if "calibrate" not in line and line != "fio"]
    for together in ("(iostat|sar) begins", "(iostat|sar) ends|sadf"):
        places = [n for n, line in enumerate(kept) if re.fullmatch(together, line)]
        for place, line in zip(places, sorted(kept[n] for n in places), strict=True):
            kept[place] = line
    return kept


def test_the_whole_order(machine: Machine) -> None:
    record = carry_out(machine, make_trial())
    assert without_calibration(machine.log_lines()) == ORDER
    assert (record.outcome, record.phase, record.error) == ("ok", "record", None)
    assert machine.left() == []


def test_every_phase_is_in_the_record_with_its_times(machine: Machine) -> None:
    record = carry_out(machine, make_trial())
    assert [phase.name for phase in record.phases] == [
        *("requirements", "driver", "storage", "data", "dataset", "queue_settings", "calibrate"),
        *("memory", "dirty", "cache", "slice", "before", "collectors", "run", "stop", "totals"),
        "cleanup",
    ]
    starts = [phase.start_monotonic_seconds for phase in record.phases]
    assert starts == sorted(starts)
    assert all(0 <= phase.seconds < 30 for phase in record.phases)


def test_the_record_holds_what_happened(machine: Machine) -> None:
    record = carry_out(machine, make_trial())
    assert record.cage.read_back == {
        **known(record.cage.expected),
        "cpu.max": "max 100000",
        "io.max.wbps": "max",
        "io.max.wiops": "max",
    }
    assert record.cage.requested == dict(CAGE.properties)
    assert record.cache.requested == "cold"
    assert record.cache.resident_bytes_before == 0
    assert known(record.device.queue_settings)["read_ahead_kb"] == "128"
    assert record.device.maj_min == MAJ_MIN
    assert to_json(record.exit) == {"status": 0, "oom_kill": 0}
    assert record.samples == ({"seconds": 0.25, "bytes": 524288},)
    names = ("sampler", "iostat", "sar", "vmtouch")
    assert collector_states(record) == dict.fromkeys(names, "ok")
    assert record.workload.checksum_ok is True
    assert len(known(record.workload.sha256)) == 64


def test_responses_are_computed_from_the_slice_and_the_end_line(machine: Machine) -> None:
    response = dict(carry_out(machine, make_trial()).response)
    rates = {
        name
        for name in response
        if name.startswith(("pages_", "pgpg")) or name.endswith("faults_per_second")
    }
    assert len(rates) == 10
    assert set(response) == STANDARD_RESPONSES - TRACED_RESPONSES
    assert 0 < (response.pop("start_seconds") or 0) < 30
    assert {name: value for name, value in response.items() if name not in rates} == {
        "io_stalled_seconds": 0.0,
        "read_seconds": 0.5,
        "covered_fraction": 0.5,
        "full_pass_seconds": 1.0,
        "bytes_per_second": 2097152.0,
        "device_read_bytes": 1048576.0,
        "lower_device_read_bytes": None,
        "lower_device_reads": None,
        "device_reads": 8.0,
        "device_read_bytes_per_second": 2097152.0,
        "device_reads_per_second": 16.0,
        "amplification": 2.0,
        "major_faults": 8,
        "device_bytes_per_read": 131072.0,
        "device_write_bytes": 0.0,
        "device_write_bytes_per_second": 0.0,
        "memory_peak_bytes": 4096,
        "charged_cache_bytes": 4096,
        "read_bytes_ahead": None,
        "reads_ahead": None,
    }


def test_counters_stand_around_the_measured_part(machine: Machine) -> None:
    counters = to_json(carry_out(machine, make_trial()).counters)
    assert counters["before"]["cgroup"]["io.stat"] == {}
    assert counters["after"]["cgroup"]["io.stat"][MAJ_MIN]["rbytes"] == 1048576
    assert counters["totals"]["cgroup"]["memory.events"]["oom_kill"] == 0
    assert counters["before"]["host"]["meminfo"]["MemTotal"] > 0


def test_every_trace_comes_before_the_record_and_whole(machine: Machine) -> None:
    out, trial = io.BytesIO(), make_trial()
    carry_out(machine, trial, make_session(machine, out, trial))
    frames = frames_of(out.getvalue())
    kinds = [frame["frame"] for frame in frames]
    assert kinds.index("record") > max(n for n, kind in enumerate(kinds) if kind == "trace")
    bodies: dict[str, bytes] = {f["name"]: f["body"] for f in frames if f["frame"] == "trace"}
    assert set(bodies) == {"sampler.jsonl", "iostat.json", "sar.bin", "sar.json", "vmtouch.jsonl"}
    json.loads(bodies["iostat.json"])
    rows: list[dict[str, Any]] = [json.loads(line) for line in bodies["sampler.jsonl"].splitlines()]
    assert rows[-1]["io"]["rbytes"] == 1048576
    assert rows[0]["resident_pages"] in (0, None)


def test_events_mark_the_measured_part_for_the_controller(machine: Machine) -> None:
    out, trial = io.BytesIO(), make_trial()
    carry_out(machine, trial, make_session(machine, out, trial))
    events = [one["event"] for one in frames_of(out.getvalue()) if one["frame"] == "event"]
    assert [event for event in events if event != "phase"] == ["trial", "go", "end"]


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("io.max", "io.max.rbps"),
        ("memory.max", "memory.max"),
        ("memory.swap.max", "memory.swap.max"),
    ],
)
def test_a_limit_that_is_not_applied_starts_no_workload(
    machine: Machine, file: str, shown: str
) -> None:
    """A manager without a controller drops limits silently, as `--user` does without `io`."""
    machine.misbehave(FORGETS=file)
    record = carry_out(machine, make_trial())
    assert record.outcome == "requirement_missed"
    assert record.phase == "slice"
    assert shown in record.missed_requirements[0].reason
    scopes = [line for line in machine.log_lines() if line.startswith("scope")]
    assert [line for line in scopes if "calibrate" not in line] == []
    assert record.measured is None
    assert machine.left() == []


def test_an_unrequested_limit_starts_no_workload(machine: Machine) -> None:
    """systemd also applies a drop-in that an earlier run has left."""
    drop_in = machine.control / "pagecage-r1_light.1.slice.d"
    drop_in.mkdir()
    (drop_in / "40-left.conf").write_text("MemoryMax=8388608\n")
    record = carry_out(machine, make_trial(cage=LIGHT, trial_id="r1_light"))
    assert record.outcome == "requirement_missed"
    assert "memory.max is 8388608, which was not requested" in record.missed_requirements[0].reason
    assert not any(line.startswith("workload") for line in machine.log_lines())
    assert machine.left() == []


@pytest.mark.parametrize(
    ("program", "outcome", "phase", "error"),
    [
        ("good.py", "ok", "record", None),
        ("dies_before_ready.py", "failed", "run", "cannot open it: No such file or directory"),
        ("dies_before_end.py", "failed", "run", "it ended by signal 11 before `end`"),
        ("wrong_checksum.py", "wrong_answer", "record", "checksum 8 is not the sidecar's"),
        ("cannot.py", "requirement_missed", "run", "io_uring is switched off here"),
        ("out_of_memory.py", "oom_killed", "record", None),
        ("killed.py", "failed", "run", "it ended by signal 9 before `end`"),
        ("ends_without_end.py", "failed", "run", "it ended with status 0 before `end`"),
    ],
)
def test_what_a_workload_does_decides_the_outcome(
    machine: Machine, program: str, outcome: str, phase: str, error: str | None
) -> None:
    record = carry_out(machine, make_trial(program))
    assert (record.outcome, record.phase, record.error) == (outcome, phase, error)
    assert machine.left() == []
    assert machine.log_lines()[-1] == "read_ahead_kb 256"


@pytest.mark.parametrize(
    "program", ["never_ends.py", "never_ready.py", "floods_for_ever.py", "stops_for_ever.py"]
)
def test_a_workload_without_end_is_ended(machine: Machine, program: str) -> None:
    record = carry_out(machine, make_trial(program, timeout_seconds=1.5))
    assert record.outcome == "timed_out"
    state = "ready" if program == "never_ready.py" else "done"
    assert record.error is not None, "a flood may be longer than a record, which is said behind it"
    assert record.error.split("; ")[0] == f"not {state} after 1.5 s"
    assert f"kill {UNIT}" in machine.log_lines()
    assert machine.left() == []


def test_what_a_workload_does_after_it_stopped_is_not_measured(machine: Machine) -> None:
    record = carry_out(machine, make_trial("verifies.py"))
    assert record.outcome == "ok"
    assert known(record.measured).seconds < VERIFYING_SECONDS
    assert record.response["device_read_bytes"] == 4096
    assert known(record.workload.end)["seconds"] == 0.01, "the end that comes later is heard"


def test_a_workload_that_dies_before_ready_has_only_totals(machine: Machine) -> None:
    record = carry_out(machine, make_trial("dies_before_ready.py"))
    assert record.counters.present == {"totals", "around"}
    assert record.measured is None
    assert record.response == {}


def test_a_mapped_file_is_not_cold(machine: Machine) -> None:
    """A mapped page cannot be evicted, so nothing is started."""
    with (
        (machine.data / DATASET.file_name).open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as held,
    ):
        assert held[0] >= 0
        record = carry_out(machine, make_trial(cage=LIGHT))
    assert (record.outcome, record.phase) == ("not_prepared", "cache")
    assert "bytes are resident, not cold" in (record.error or "")
    assert not any(line.startswith("workload") for line in machine.log_lines())
    assert machine.left() == []


def test_a_resident_file_is_full_and_charged_to_the_agent(machine: Machine) -> None:
    record = carry_out(machine, make_trial(cage=LIGHT, cache="resident"))
    assert record.outcome == "ok"
    assert record.cache.resident_bytes_before == record.cache.file_bytes == DATASET.size_bytes
    # a busy machine may have reclaimed some
    assert 0 < known(record.cache.resident_bytes_after) <= DATASET.size_bytes
    assert record.cache.charged_to == str(own_cgroup())


def test_a_file_that_cannot_be_kept_whole_is_not_resident(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagecage.agent.cache_state.load", lambda path: None)
    record = carry_out(machine, make_trial(cage=LIGHT, cache="resident"))
    assert (record.outcome, record.phase) == ("not_prepared", "cache")


@pytest.mark.parametrize("resident", [True, False])
def test_any_state_is_measured_and_left_as_it_is(machine: Machine, resident: bool) -> None:
    path = machine.data / DATASET.file_name
    found = load(path) if resident else evict(path)
    record = carry_out(machine, make_trial(cage=LIGHT, cache="any"))
    assert record.cache.resident_bytes_before == found.resident_bytes
    assert record.cache.charged_to is None


def test_without_a_dataset_there_is_no_cache_state(machine: Machine) -> None:
    trial = make_trial(cage=LIGHT, dataset=None, collectors=("vmtouch", "bpftrace"))
    record = carry_out(machine, trial)
    assert record.outcome == "ok"
    assert to_json(record.cache) == {"requested": "cold", "charged_to": None, "metadata": "unknown"}
    missing = dict.fromkeys(("vmtouch", "bpftrace"), "missing")
    assert collector_states(record) == {"sampler": "ok", **missing}


def test_a_host_that_lacks_something_is_left_untouched(machine: Machine) -> None:
    session = make_session(machine, io.BytesIO(), make_trial())
    session.facts["cgroup"]["controllers"].remove("io")
    record = carry_out(machine, make_trial(), session)
    assert (record.outcome, record.phase) == ("requirement_missed", "requirements")
    assert record.missed_requirements[0].requirement == "io_controller"
    assert machine.log_lines() == []


def test_a_user_is_measured_under_their_own_manager(machine: Machine) -> None:
    """The order is the same; each command has --user, and the slice is below user@UID.service."""
    parent = machine.cgroups / f"user.slice/user-{os.getuid()}.slice/user@{os.getuid()}.service"
    machine.misbehave(PARENT=str(parent / "pagecage.slice"))
    trial = make_trial(cage=LIGHT)
    session = make_session(machine, io.BytesIO(), trial)
    manager = Systemd(True, 257)
    calibrator = Calibrator(manager, session.disk, machine.data, session.interruption)
    own = replace(session, systemd=manager, calibrators={"systemd": calibrator})
    record = carry_out(machine, trial, own)
    assert record.outcome == "ok"
    assert known(record.cage.slice).startswith(str(parent))
    assert machine.left() == []


def test_a_record_that_the_controller_would_not_take_loses_its_samples() -> None:
    many = make_record(samples=[{"text": "x" * 1000}] * 5000)
    bounded = agent_session._bounded(many)
    assert (bounded.samples, bounded.outcome) == ((), "failed")
    assert "5000 samples" in (bounded.error or "")
    late = replace(many, outcome="timed_out", error="not done after 1.5 s")
    assert agent_session._bounded(late).outcome == "timed_out"
    assert (agent_session._bounded(late).error or "").startswith("not done after 1.5 s; the record")
    few = make_record(samples=[{"text": "x" * 1000}] * 1000)
    assert agent_session._bounded(few) is few


def test_a_trace_that_the_controller_would_not_take_is_left_out(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_session, "MOST_TRACE_BYTES", 10)
    out = io.BytesIO()
    trial = make_trial()
    record = carry_out(machine, trial, make_session(machine, out, trial))
    assert record.collectors["sampler"]["status"] == "failed"
    assert "is longer than" in record.collectors["sampler"]["reason"]
    assert not [one for one in frames_of(out.getvalue()) if one["frame"] == "trace"]


DATA = Dataset(8 * MIB)
READS = 'cat "$FAKE_FILE" >/dev/null; printf "anon 0\\nfile {0}\\n" >"$FAKE_SLICE/memory.stat"; '
READS += 'echo "$FAKE_MAJ_MIN rbytes={0} rios=9" >"$FAKE_SLICE/io.stat"; '


@pytest.fixture
def data(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = make_dataset(machine.data, DATA)
    monkeypatch.setenv("FAKE_FILE", str(path))
    return path


def command(data: Path) -> CommandSpec:
    return CommandSpec(data_paths=(str(data),), ready_when="^serving$", is_literal=True)


def test_its_files_are_cold_before_the_server_is_let_go(machine: Machine, data: Path) -> None:
    """The bytes that it reads until it serves are its own, and are not in the window."""
    server = READS.format(DATA.size_bytes) + SERVES
    load = "sleep 0.3; echo tps = 1"
    record = serve_load(machine, load, server, command(data), trial={"cache": "cold"})
    assert (record.outcome, record.error) == ("ok", None)
    assert record.cache.go
    assert record.cache.go.resident_bytes == 0
    assert record.cache.end
    assert record.cache.end.resident_bytes >= DATA.size_bytes
    assert record.response["device_read_bytes"] == 0


def test_a_load_that_reads_the_servers_files_itself_is_no_answer(
    machine: Machine, data: Path
) -> None:
    """Pages that a process outside the cage brings in are not read from the disk by the server."""
    load = 'cat "$FAKE_FILE" >/dev/null; echo tps = 1'
    record = serve_load(machine, load, command=command(data), trial={"cache": "cold"})
    assert record.outcome == "not_prepared"
    assert "another process" in (record.error or "")


def serve(package: AgentPackage, machine: Machine, trial: Trial) -> int:
    """Run one agent with this trial; return its exit status."""
    agent = StartedAgent(package, machine, request_line(make_request(machine, trial)))
    agent.stdout.read()
    return agent.end()


@pytest.mark.parametrize("warm_up_seconds", [0.0, 30.0])
def test_a_killed_agent_leaves_no_load(
    machine: Machine, package: AgentPackage, tmp_path: Path, warm_up_seconds: float
) -> None:
    """The kernel ends the load with its supervisor; the next start ends the server."""
    load = f"echo $$ >{tmp_path}/pid; kill -9 $FAKE_AGENT; exec sleep 60"
    spec = CommandSpec(ready_when="^serving$", is_literal=True)
    metrics = {"tps": MetricPattern("(.)")}
    service = ServiceSpec(("sh", "-c", load), metrics, warm_up_seconds)
    workload = Workload("sh", ("-c", SERVES), "service", command=spec, service=service)
    assert serve(package, machine, bare_trial(workload)) == -9
    left = int((tmp_path / "pid").read_text())
    wait_until(lambda: identify(left) is None, 20)
    assert machine.left() != []
    assert serve(package, machine, make_trial(cage=LIGHT)) == 0
    assert machine.left() == []
