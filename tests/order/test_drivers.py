"""A trial with each driver on the fake machine: its slice, its limits, and their read-back."""

from __future__ import annotations

import base64
import io
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pagecage.agent import caging, storage
from pagecage.agent.drivers.container import limit_options
from pagecage.agent.host_session import HostSession
from pagecage.agent.protocol import AnswerQueue, FrameStream
from pagecage.linux.cgroup import Cgroup
from pagecage.model.cage import BurstCredits, Cage, CreditBucket
from pagecage.model.json_codec import Json
from pagecage.model.record import Record
from pagecage.model.trial import CommandSpec, Trial, Workload
from tests.builders import trial_runs
from tests.builders.known import known
from tests.builders.trial_runs import assert_read_back
from tests.fake_host.docker_api import docker_api
from tests.fake_host.machine import CAGE, NODE, Machine, make_session, make_trial
from tests.record_schema import breaches

UNIT = "pagecage-r1_tight.1.slice"
RUN = "pagecage-run-r1_tight.1"
RANDOM = Workload("fio", ("rw=randread", "bs=4k"), "fio")
DOCKER_UNITS = "docker.socket docker.service containerd.service"


def carry_out(machine: Machine, trial: Trial, session: HostSession | None = None) -> Record:
    session = session or make_session(machine, io.BytesIO(), trial)
    try:
        record = trial_runs.carry_out(machine, trial, session)
    finally:
        session.engines.stop()
    assert not breaches(json.loads(machine.records.read_text().splitlines()[-1]))
    assert machine.left() == []
    return record


def by(driver: str, **changes: Any) -> Trial:
    return make_trial(driver=driver, collectors=(), **changes)


@pytest.mark.parametrize(
    ("driver", "start"),
    [
        ("systemd-scope", f"scope {RUN} in {UNIT}: good.py"),
        ("systemd-service", f"service {RUN} in {UNIT}: good.py"),
        ("docker", f"container {RUN} in {UNIT}: good.py"),
        ("podman", f"container {RUN} in {UNIT}: good.py"),
    ],
)
def test_every_driver_runs_in_the_slice_with_the_limits(
    machine: Machine, driver: str, start: str
) -> None:
    if driver == "podman":
        machine.misbehave(DOCKER_INFO=json.dumps(PODMAN_INFO))
    record = carry_out(machine, by(driver))
    assert (record.outcome, record.error) == ("ok", None)
    assert start in machine.log_lines()
    assert known(record.cage.driver)["name"] == driver
    assert_read_back(record)
    assert known(record.cage.expected)["io.max.rbps"] == "20000000"
    assert "driver_cgroup" not in record.cage.present
    assert known(record.response["start_seconds"]) > 0


def test_an_engine_is_started_before_anything_is_measured_and_ended_after_it(
    machine: Machine,
) -> None:
    record = carry_out(machine, by("docker"))
    log = machine.log_lines()
    lines = [f"is-active {DOCKER_UNITS}", "start docker.service", "docker info"]
    lines += ["docker import image.tar", f"set-property {UNIT}"]
    lines += [f"container {RUN} in {UNIT}: good.py"]
    places = [log.index(line) for line in lines]
    assert places == sorted(places)
    assert log[-2:] == ["docker image rm", f"stop {DOCKER_UNITS}"]
    assert log.index(f"stop {UNIT}") > log.index("docker rm --force") > log.index("workload exits")
    assert known(record.cage.driver)["engine"]["storage_driver"] == "overlay2"


@pytest.mark.parametrize(
    ("active", "stopped"),
    [
        ("docker.socket docker.service containerd.service", []),
        ("docker.socket", ["stop docker.service containerd.service"]),
    ],
)
def test_an_engine_that_ran_before_is_left_running(
    machine: Machine, active: str, stopped: list[str]
) -> None:
    machine.misbehave(ACTIVE=active)
    assert carry_out(machine, by("docker")).outcome == "ok"
    assert [line for line in machine.log_lines() if line.startswith("stop docker")] == stopped


def test_dockers_own_limits_are_read_back_where_docker_puts_them(machine: Machine) -> None:
    record = carry_out(machine, by("docker-flags"))
    assert (record.outcome, record.error) == ("ok", None)
    assert known(record.cage.driver_cgroup).endswith(f"{UNIT}/docker-0123abcd.scope")
    assert_read_back(record)
    assert record.cage.expected == {
        "memory.max": str(8 * 1024**2),
        "memory.swap.max": "0",
        "io.max.rbps": "20000000",
        "io.max.riops": "500",
    }
    assert record.cage.calibration == {}, "calibrating the slice would not prove Docker's limits"


@pytest.mark.parametrize(
    ("lost", "named"), [("device", "io.max.rbps is max, not 20000000"), ("memory", "memory.max")]
)
@pytest.mark.parametrize("driver", ["docker-flags", "docker-api"])
def test_a_limit_that_docker_loses_silently_is_detected(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, driver: str, lost: str, named: str
) -> None:
    monkeypatch.setenv("FAKE_LOSES", lost)
    with api(machine, monkeypatch):
        record = carry_out(machine, by(driver))
    assert record.outcome == "requirement_missed"
    assert record.error is not None
    assert f"{driver} lost them: " in record.error
    assert named in record.error
    assert record.missed_requirements[0].hint == "use --driver docker: limits on our own slice"
    assert "workload go" not in machine.log_lines(), "it was let go although its cage was open"


def test_files_that_go_away_while_they_are_read_are_no_lost_limit(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that ends takes its cgroup with it, file by file for a reader."""
    read, readings = caging._read_back, Counter[Cgroup]()

    def read_as_it_goes(cgroup: Cgroup, *given: Any, **options: Any) -> dict[str, Any]:
        found = read(cgroup, *given, **options)
        readings[cgroup] += 1
        if readings[cgroup] > 1:
            found["read_back"].pop("memory.swap.max", None)
        return found

    monkeypatch.setenv("FAKE_LOSES", "device")
    monkeypatch.setenv("FAKE_LASTS", "3")
    monkeypatch.setattr("pagecage.agent.programs.fio.missing_engine", lambda _: None)
    monkeypatch.setattr(caging, "_read_back", read_as_it_goes)
    record = carry_out(machine, by("docker-flags", workload=RANDOM))
    assert max(readings.values()) > 1, "it was read once"
    assert "docker-flags lost them: io.max.rbps is max, not 20000000" in (record.error or "")


@pytest.mark.parametrize("program", ["fio", "sh"])
def test_a_lost_limit_is_detected_for_every_kind_of_program(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setenv("FAKE_LOSES", "device")
    # the cage of a command that exits at once cannot be read
    monkeypatch.setenv("FAKE_LASTS", "3")
    monkeypatch.setattr("pagecage.agent.programs.fio.missing_engine", lambda _: None)
    script = ("-c", "echo gone > {data_dir}/let-go")
    command = Workload("sh", script, "command", command=CommandSpec())
    record = carry_out(
        machine, by("docker-flags", workload=RANDOM if program == "fio" else command)
    )
    assert record.outcome == "requirement_missed", record.error
    assert "docker-flags lost them: io.max.rbps is max, not 20000000" in (record.error or "")
    assert not (machine.data / "let-go").exists()


def test_limits_are_read_back_when_the_runtime_has_set_them(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a gate, the container's cgroup was once read before it had its limits."""
    monkeypatch.setenv("FAKE_SLOW", "runtime")
    monkeypatch.setenv("FAKE_LASTS", "0.5")
    monkeypatch.setattr("pagecage.agent.programs.fio.missing_engine", lambda _: None)
    record = carry_out(machine, by("docker-flags", workload=RANDOM))
    assert "lost" not in (record.error or "")
    assert known(record.cage.expected)["io.max.riops"] == "500"
    assert_read_back(record)


def test_without_the_read_back_the_loss_goes_unnoticed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOSES", "device")
    monkeypatch.setattr("pagecage.agent.caging.CageLimits.confirm", lambda *_: None)
    assert carry_out(machine, by("docker-flags")).outcome == "ok"


def api(machine: Machine, monkeypatch: pytest.MonkeyPatch, refuses: str = "") -> Any:
    path = Path(f"/tmp/pagecage-test-{machine.root.name}.sock")
    path.unlink(missing_ok=True)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    return docker_api(path, machine.docker_root / "created", refuses)


def test_the_api_is_asked_for_the_same_container(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with api(machine, monkeypatch) as bodies:
        record = carry_out(machine, by("docker-api"))
    assert (record.outcome, record.error) == ("ok", None)
    [body] = bodies
    assert body["HostConfig"]["BlkioDeviceReadBps"] == [{"Path": NODE, "Rate": 20_000_000}]
    assert body["HostConfig"]["BlkioDeviceReadIOps"] == [{"Path": NODE, "Rate": 500}]
    assert body["HostConfig"]["CgroupParent"] == UNIT
    assert body["HostConfig"]["MemorySwap"] == body["HostConfig"]["Memory"] == 8 * 1024**2
    assert_read_back(record)


def test_a_refusal_of_the_api_is_quoted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with api(machine, monkeypatch, refuses="stat /dev/fakedisk: no such file or directory"):
        record = carry_out(machine, by("docker-api"))
    assert record.outcome == "failed"
    assert "stat /dev/fakedisk: no such file or directory" in (record.error or "")


def test_data_in_the_containers_layer_are_linked_into_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "resolve_disk", lambda _: make_session(machine, io.BytesIO()).disk)
    folder = machine.docker_root / "pagecage-data"
    folder.mkdir()
    for path in machine.data.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    record = carry_out(machine, by("docker", storage="container_layer"))
    assert (record.outcome, record.error) == ("ok", None)
    [data] = [path for path in folder.iterdir() if path.suffix == ".bin"]
    linked = machine.docker_root / "upper" / str(data).lstrip("/")
    assert linked.stat().st_ino == data.stat().st_ino, "a copy would have pages of its own"
    assert linked.with_name(data.name + ".json").exists()
    assert record.device.storage == "container_layer"
    assert f"docker create {RUN} in {UNIT}" in machine.log_lines()


PODMAN_INFO: Json = {
    "host": {
        "cgroupManager": "systemd",
        "cgroupVersion": "v2",
        "security": {"rootless": False},
        "cgroupControllers": ["cpu", "io", "memory"],
    },
    "store": {"graphDriverName": "overlay", "graphRoot": "/var/lib/containers/storage"},
    "version": {"Version": "5.4.2"},
}
DOCKER_INFO = {
    "ServerVersion": "26",
    "Driver": "overlay2",
    "CgroupDriver": "systemd",
    "CgroupVersion": "2",
    "DockerRootDir": "/var/lib/docker",
}


@pytest.mark.parametrize(
    ("driver", "info", "reason"),
    [
        (
            "docker",
            {
                **DOCKER_INFO,
                "SecurityOptions": ["name=rootless"],
                "Warnings": ["WARNING: No io.max (rbps) support"],
            },
            "rootless docker has no io controller and discards limits on I/O with a warning",
        ),
        (
            "docker",
            {**DOCKER_INFO, "SecurityOptions": ["name=rootless"]},
            "docker runs as a user, so it cannot put a container into a slice of root's systemd",
        ),
        (
            "docker",
            {**DOCKER_INFO, "CgroupDriver": "cgroupfs"},
            "docker makes its cgroups by cgroupfs",
        ),
        ("docker", {**DOCKER_INFO, "CgroupVersion": "1"}, "docker uses cgroup v1"),
        (
            "podman",
            {**PODMAN_INFO, "host": {**PODMAN_INFO["host"], "cgroupControllers": ["memory"]}},
            "podman has no io controller",
        ),
    ],
)
def test_an_unusable_engine_is_refused(
    machine: Machine, driver: str, info: dict[str, Any], reason: str
) -> None:
    machine.misbehave(DOCKER_INFO=json.dumps(info))
    record = carry_out(machine, by(driver))
    assert record.outcome == "requirement_missed"
    assert reason in (record.error or "")
    assert record.missed_requirements[0].hint
    assert not [line for line in machine.log_lines() if line.startswith("container")]


def test_a_missing_engine_is_one_sentence(machine: Machine) -> None:
    machine.misbehave(FAILS="engine")
    record = carry_out(machine, by("docker"))
    assert record.outcome == "requirement_missed"
    says = "the Docker engine cannot be started: Failed to start docker.service"
    assert says in (record.error or "")


def test_a_program_that_is_not_installed_is_named(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda name, **more: None if name == "podman" else found(name, **more)
    )
    record = carry_out(machine, by("podman"))
    assert record.error == "podman is not installed on this host"
    assert record.missed_requirements[0].hint == "apt-get install podman"


def test_burst_credits_need_a_slice_with_the_limits_on_it(machine: Machine) -> None:
    burst = BurstCredits("full", iops=CreditBucket(1000, 10))
    cage = Cage("b", {"IOReadIOPSMax": 500}, burst=burst)
    record = carry_out(machine, by("docker-flags", cage=cage))
    assert record.outcome == "requirement_missed"
    assert "docker-flags sets them elsewhere" in (record.error or "")


class Answering(FrameStream):
    """A stream whose reader answers every question at once."""

    def __init__(self, inbox: AnswerQueue, answer: dict[str, Any] | None) -> None:
        super().__init__(io.BytesIO())
        self.asked: list[dict[str, int]] = []
        self._inbox, self._answer = inbox, answer

    def event(self, event: str, **details: Any) -> None:
        super().event(event, **details)
        if event == "throttle_wanted":
            self.asked.append(details["limits"])
            answer = self._answer or {"read_back": details["limits"]}
            piece = base64.b64encode(json.dumps(answer).encode()).decode()
            line = {"answers": details["question"], "piece": piece}
            self._inbox.put_line(json.dumps(line).encode())


def with_qemu(
    machine: Machine, trial: Trial, answer: dict[str, Any] | None = None
) -> tuple[Record, Answering]:
    inbox = AnswerQueue()
    stream, session = (
        Answering(inbox, answer),
        make_session(machine, io.BytesIO(), trial, inbox=inbox),
    )
    return carry_out(machine, trial, HostSession(**{**vars(session), "stream": stream})), stream


def test_qemu_limits_the_disk_and_the_slice_the_rest(machine: Machine) -> None:
    record, stream = with_qemu(machine, by("qemu-throttle"))
    assert (record.outcome, record.error) == ("ok", None)
    disk = {"IOReadBandwidthMax": 20_000_000, "IOReadIOPSMax": 500}
    assert stream.asked == [disk, {}], "held before the start, let go of afterwards"
    assert record.cage.external == {"by": "qemu", "read_back": disk}
    assert record.cage.expected == {"memory.max": str(8 * 1024**2), "memory.swap.max": "0"}
    assert record.cage.requested == dict(CAGE.properties)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            {"error": "this machine is no guest of ours", "hint": "use HOST=vm"},
            "this machine is no guest of ours",
        ),
        ({"read_back": {"IOReadBandwidthMax": 7}}, "qemu holds IOReadBandwidthMax at 7"),
    ],
)
def test_external_limits_need_a_controller(
    machine: Machine, answer: dict[str, Any], reason: str
) -> None:
    record, _ = with_qemu(machine, by("qemu-throttle"), answer)
    assert record.outcome == "requirement_missed"
    assert reason in (record.error or "")


def test_docker_limits_are_plain_numbers() -> None:
    io_limits = {"IOWriteBandwidthMax": 7, "IOWriteIOPSMax": 9}
    cage = Cage("all", {"MemoryMax": 4096, **io_limits, "CPUQuota": 150})
    assert limit_options(cage, "/dev/vdb") == [
        *("--memory=4096", "--memory-swap=-1", "--cpu-period=100000", "--cpu-quota=150000"),
        *("--device-write-bps=/dev/vdb:7", "--device-write-iops=/dev/vdb:9"),
    ]
