"""A trial of an image on the fake machine: loaded once, behind the gate, its files cold."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from socket import create_server
from typing import Any

import pytest

from pagecage.agent.drivers.container import own_name
from pagecage.agent.host_session import HostSession
from pagecage.agent.session import run_trial
from pagecage.model.record import Record, read_records
from pagecage.model.trial import BindMount, CommandSpec, ImageSpec, Trial, Variable, Workload
from tests.builders.command_trials import bare_trial
from tests.builders.image_archive import config_of, write_archive
from tests.builders.image_archive import layer as image_layer
from tests.builders.known import known
from tests.fake_host.machine import Machine, make_session
from tests.record_schema import breaches
from tests.tree import ROOT

RUN = "container pagecage-run-r1_tight.1 in pagecage-r1_tight.1.slice: pcgate"
GATE = ROOT / "build/c/pcgate"


@pytest.fixture(scope="module", autouse=True)
def gate() -> None:
    argv = ["make", "-C", str(ROOT / "workloads/c"), "OUT=../../build/c", "../../build/c/pcgate"]
    subprocess.run(argv, check=True, capture_output=True)


ARCHIVES: dict[str, str] = {}
"""Path and image id of the archive of these tests."""


@pytest.fixture(scope="module", autouse=True)
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive that names an image of pagecage's, whose containers have every capability."""
    path = tmp_path_factory.mktemp("archives") / "own.tar"
    layers = [image_layer({"own": b"#!/bin/sh\n"})]
    tags = ("localhost/pagecage-root:1", "debian:latest")
    ARCHIVES["id"] = write_archive(path, layers, config_of(layers, Entrypoint=["/own"]), tags)
    ARCHIVES["path"] = str(path)
    return path


@pytest.fixture
def layer(machine: Machine) -> Path:
    """The image's only layer, with a file that is in the page cache."""
    file = machine.docker_root / "upper/words"
    file.write_bytes(os.urandom(200_000))
    return file


def trial(
    *argv: str, image: dict[str, Any] | None = None, number: int = 1, **command: Any
) -> Trial:
    settings: dict[str, Any] = {"archive": ARCHIVES["path"], **(image or {})}
    spec = ImageSpec("own:1", ARCHIVES["id"], "amd64", 4096, **settings)
    program = CommandSpec(is_literal=True, image=spec, **command)
    workload = Workload(argv[0], argv[1:], "command", command=program)
    return bare_trial(workload, driver="docker", cache="cold", position=number - 1)


@contextmanager
def session(machine: Machine, *trials: Trial) -> Iterator[HostSession]:
    made, programs = make_session(machine, io.BytesIO(), *trials), machine.root / "bin"
    programs.mkdir()
    (programs / GATE.name).symlink_to(GATE)
    try:
        yield replace(made, request=replace(made.request, programs_dir=str(programs)))
    finally:
        made.engines.stop()


def carry_out(machine: Machine, *trials: Trial) -> list[Record]:
    with session(machine, *trials) as made:
        for attempt, one in enumerate(trials, 1):
            run_trial(made, one, attempt)
    for line in machine.records.read_text().splitlines():
        assert not breaches(json.loads(line))
    assert machine.left() == []
    return list(read_records(machine.records))


def test_the_program_runs_behind_the_gate_with_cold_layers(machine: Machine, layer: Path) -> None:
    [record] = carry_out(machine, trial("sh", "-c", f"cat {layer} >/dev/null"))
    assert (record.outcome, record.error) == ("ok", None)
    assert RUN in machine.log_lines()
    assert (record.cache.file_bytes, record.cache.resident_bytes_before) == (200_000, 0)
    assert record.cache.resident_bytes_after == -(-200_000 // 4096) * 4096
    assert known(record.workload.argv)[0] == "sh"
    assert known(record.cage.driver)["image"] == {
        "reference": "own:1",
        "id": ARCHIVES["id"],
        "architecture": "amd64",
        "layer_bytes": 4096,
        "user": "web",
        "layers": [str(layer.parent)],
    }


@pytest.mark.parametrize(("state", "evicted"), [("cold", 4096), ("any", None)])
def test_what_the_engine_reads_is_evicted_at_the_gate(
    machine: Machine, layer: Path, state: str, evicted: int | None
) -> None:
    (layer.parent / "passwd").write_bytes(b"root:x:0:0::/:/x\n")
    [record] = carry_out(machine, replace(trial("true"), cache=state))
    assert (record.outcome, record.cache.evicted_bytes) == ("ok", evicted), record.error
    if state == "cold":
        assert known(record.cache.go).resident_bytes == 0


def test_the_record_has_nothing_of_the_hosts_own(machine: Machine, layer: Path) -> None:
    """Neither its variables nor the hash of its program, which another of that name is."""
    variables = (Variable("B", "2"), Variable("A", "1"))
    [record] = carry_out(machine, trial("true", image={"environment": variables}))
    assert record.outcome == "ok", layer
    assert record.workload.environment == ("A", "B")
    assert record.workload.sha256 is None


def test_the_image_is_loaded_once_and_removed_at_the_end(machine: Machine, layer: Path) -> None:
    first, second = carry_out(machine, trial("true"), trial("true"))
    assert (first.outcome, second.outcome) == ("ok", "ok"), (layer, second.error)
    log = machine.log_lines()
    name = own_name(ARCHIVES["id"])
    assert log.count(f'docker load "RepoTags": ["{name}"]') == 1
    assert log.count("docker image rm") == 1
    stop = "stop docker.socket docker.service containerd.service"
    assert log.index("docker image rm") < log.index(stop)


def test_a_mount_is_cold_too(machine: Machine, layer: Path) -> None:
    own = machine.data / "own"
    own.write_bytes(b"x" * 5000)
    mounts = (BindMount(str(own), "/own", is_read_only=True),)
    [record] = carry_out(machine, trial("true", image={"mounts": mounts}))
    assert (record.outcome, record.cache.file_bytes) == ("ok", 205_000), layer


def test_a_program_that_the_image_lacks(machine: Machine, layer: Path) -> None:
    [record] = carry_out(machine, trial("no-such-program"))
    assert record.outcome == "failed"
    said = "its container was not started: there is no program no-such-program in the image"
    assert record.error == said, layer


@pytest.mark.parametrize(
    ("image", "says", "hint"),
    [
        ({"archive": None}, "docker has no image own:1", "docker pull own:1"),
        (
            {"archive": "/archives/absent.tar"},
            "docker cannot load own:1: [Errno 2] No such file or directory",
            "docker info",
        ),
        ({"archive": __file__}, "docker cannot load own:1: ", "docker info"),
        ({"mounts": (BindMount("/nope", "/x"),)}, "--volume: /nope does not exist", "ls -d /nope"),
    ],
)
def test_what_is_missing_on_the_host(
    machine: Machine, layer: Path, image: dict[str, Any], says: str, hint: str
) -> None:
    [record] = carry_out(machine, trial("true", image=image))
    assert record.outcome == "requirement_missed", layer
    assert says in (record.error or "")
    assert record.missed_requirements[0].hint == hint


def test_a_published_port_that_is_in_use(machine: Machine, layer: Path) -> None:
    with closing(create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        [record] = carry_out(machine, trial("true", image={"ports": (port,)}))
    assert record.outcome == "requirement_missed", layer
    said = f"port {port} is already taken by "
    assert said in (record.error or "")


def test_the_values_of_variables_are_in_no_record_and_in_no_file_afterwards(
    machine: Machine, layer: Path
) -> None:
    """During the trial they are in one file in memory, which only its user can read."""
    seen = machine.root / "seen"
    find = f"find {machine.root} -name '*.env' -exec"
    look = f"{find} stat -c '%a %n' {{}} + >{seen}; {find} cat {{}} + >>{seen}"
    variables = (Variable("PW", "it's-secret-tail"), Variable("API.KEY", "another one"))
    [record] = carry_out(machine, trial("sh", "-c", look, image={"environment": variables}))
    assert record.outcome == "ok", (layer, record.error)
    mode, *lines = seen.read_text().splitlines()
    assert mode.startswith("600 ")
    assert lines == ["PW=it's-secret-tail", "API.KEY=another one"]
    seen.unlink()
    for path in (path for path in machine.root.rglob("*") if path.is_file()):
        assert b"secret-tail" not in path.read_bytes(), path
    assert "secret-tail" not in "\n".join(machine.log_lines())
