"""Options of containers in the notation of `docker run`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.errors import PagecageError
from pagecage.model.plan import Plan
from pagecage.model.trial import BindMount, CommandSpec, ImageSpec, Variable, Workload
from pagecage.runner.images import (
    ContainerSettings,
    env_file,
    parse_mount,
    parse_port,
    parse_variable,
    variable_of,
    with_values,
    without_values,
)
from tests.builders.known import known
from tests.fake_host.machine import make_trial


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "is_read_only"),
    [
        ("./data:/x", False),
        ("{}/data:/x:ro", True),
        ("./a/../data:/x:rw", False),
        ("./data:/x:ro,z", True),
    ],
)
def test_a_mount(folder: Path, text: str, is_read_only: bool) -> None:
    assert parse_mount(text.format(folder)) == BindMount(f"{folder}/data", "/x", is_read_only)


def test_a_mount_below_another_folder(folder: Path) -> None:
    (folder / "data/own").mkdir()
    assert parse_mount("./own:/x", base=folder / "data").source == f"{folder}/data/own"


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("./data", "is not HOST:CONTAINER", "./data:/data:ro"),
        ("./data:x", "is not HOST:CONTAINER", ""),
        (":/x", "is not HOST:CONTAINER", ""),
        ("./data:/x:ro:y", "is not HOST:CONTAINER", ""),
        ("./data:/x:rx", "there is no mode 'rx'", "ro or rw"),
        ("data:/x", "'data' is a named volume", "--volume ./data:/x"),
        ("./nope:/x", "'./nope' does not exist", "mkdir"),
        ("./\0:/x", "is not HOST:CONTAINER", ""),
        ("./" + "n" * 5000 + ":/x", "does not exist", ""),
    ],
)
def test_a_mount_that_is_none(folder: Path, text: str, says: str, hint: str) -> None:
    with pytest.raises(PagecageError, match=says) as refused:
        parse_mount(text)
    assert hint in refused.value.hint


@given(
    st.integers(1, 65535),
    st.sampled_from(["{}", "{0}:{0}", "127.0.0.1:{0}:{0}", "[::1]:{0}:{0}/tcp"]),
)
def test_a_port(port: int, form: str) -> None:
    assert parse_port(form.format(port)) == port


@pytest.mark.parametrize("text", ["", "x", "0", "65536", "80-81", "53/udp", "1:2:3:4", "-1"])
def test_a_port_that_is_none(text: str) -> None:
    with pytest.raises(PagecageError, match="is not a TCP port"):
        parse_port(text)


@pytest.mark.parametrize("text", ["8080:80", "127.0.0.1:8080:80"])
def test_a_port_is_not_mapped(text: str) -> None:
    says = "port 80 of the container cannot be mapped to 8080"
    with pytest.raises(PagecageError, match=says) as refused:
        parse_port(text)
    assert refused.value.hint == "--publish 80:80"


def test_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "a=b")
    monkeypatch.delenv("NOWHERE", raising=False)
    assert parse_variable("HERE") == "HERE=a=b"
    assert parse_variable("OWN=c=d e") == "OWN=c=d e"
    assert parse_variable("OWN=") == "OWN="
    for text, says in (("NOWHERE", "is not set here"), ("=x", "not NAME=VALUE"), ("", "not NAME")):
        with pytest.raises(PagecageError, match=says):
            parse_variable(text)


def test_a_file_of_variables(folder: Path) -> None:
    (folder / "own").write_text("A=b\n")
    (folder / "raw").write_bytes(b"\xff\xfe")
    assert env_file("own") == folder / "own"
    for name, says in (("nope", "No such file"), ("data", "directory"), ("raw", "is not text")):
        with pytest.raises(PagecageError, match=says):
            env_file(name)


def test_the_command_line_counts_more_than_the_file() -> None:
    mounts = (BindMount("/a", "/x"), BindMount("/b", "/y"))
    of_file = ContainerSettings(("/own",), ("-a",), ("A=1",), (), mounts, (80,), "/srv", "1000")
    typed = ContainerSettings(None, ("-b",), ("A=2",), (), (BindMount("/c", "/x"),), (81, 80))
    both = of_file.changed_by(typed)
    assert (both.entrypoint, both.arguments) == (("/own",), ("-b",))
    assert both.environment == ("A=1", "A=2")
    assert both.mounts == (BindMount("/b", "/y"), BindMount("/c", "/x"))
    assert (both.ports, both.directory, both.user) == ((80, 81), "/srv", "1000")


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("replay c -e 'PW=it'\"'\"'s-secret-tail' --image x", "replay c -e PW --image x"),
        ("replay c --env=API.KEY=hunter2 --env B -eC=3", "replay c --env=API.KEY --env B -eC"),
        ("replay c --env PW=secret -- sh -e A=1", "replay c --env PW -- sh -e A=1"),
    ],
)
def test_a_recorded_command_only_names_variables(typed: str, kept: str) -> None:
    assert without_values(typed) == kept


@pytest.mark.parametrize("entry", ["A=b\nC=d", " A=b", "#A=b", "A=b\rC", "A=" + 70_000 * "x"])
def test_a_value_that_is_not_one_line_is_refused(entry: str) -> None:
    with pytest.raises(PagecageError, match="--volume"):
        variable_of(entry)


def test_a_resumed_run_takes_the_values_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    image = ImageSpec("own:1", "sha256:0", "amd64", 1, environment=(Variable("PW", None),))
    workload = Workload("sh", (), "command", command=CommandSpec(is_literal=True, image=image))
    trial = make_trial(driver="docker", collectors=(), workload=workload)
    plan = Plan("20260101T000000Z-x-vm", (trial,), {})
    monkeypatch.delenv("PW", raising=False)
    with pytest.raises(PagecageError, match="the value of the variable PW was not recorded"):
        with_values(plan)
    monkeypatch.setenv("PW", "secret")
    command = known(with_values(plan).trials[0].workload.command)
    assert known(command.image).environment == (Variable("PW", "secret"),)
