"""Images on this machine: which engine has one, its archive, and files that are none."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagecage.errors import HostError, PagecageError
from pagecage.process import find_tool
from pagecage.runner import images
from pagecage.runner.images import (
    check_platform,
    container_files,
    find_image,
    image_program,
    read_archive,
)
from tests.builders.image_archive import ARCHITECTURES, config_of, layer, write_archive
from tests.builders.programs import install

# An engine's client with one image, own:1. What it prints is cut from Docker 26.1.5 and podman 5.4.
ENGINE = """#!/bin/sh
folder=${0%/*}
echo "$@" >>"$0.log"
case "$1 $2" in
"info ") [ -e "$0.runs" ] || { echo "Cannot connect to the Docker daemon" >&2 && exit 1; } ;;
"image inspect") [ -e "$0.has" ] && [ "$3" = own:1 ] && cat "$0.json" ;;
"pull own:1") : >"$0.has" ;;
"save --output") cp "$folder/own.tar" "$3" ;;
*) exit 64 ;;
esac
"""


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with no engine yet, which is PATH beside the tools of the stub."""
    for tool in ("sh", "cat", "cp"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("pagecage.process.SYSTEM_DIRECTORIES", (str(tmp_path),))
    monkeypatch.setattr(images, "_SAVED", tmp_path / "saved")
    assert find_tool("docker") is None
    return tmp_path


def engine(folder: Path, name: str, *, has: bool = True, runs: bool = True) -> str:
    """Install an engine; return the id of its image."""
    layers = [layer({"own": b"x"})]
    config = config_of(layers, Entrypoint=["/own"], Cmd=["-a"])
    digest = write_archive(folder / "own.tar", layers, config)
    install(folder / name, ENGINE)
    told = {"Id": digest, "Architecture": config["architecture"], "Os": "linux", "Size": 12345}
    (folder / f"{name}.json").write_text(json.dumps([{**told, "Config": config["config"]}]))
    for suffix, is_wanted in (("has", has), ("runs", runs)):
        if is_wanted:
            (folder / f"{name}.{suffix}").touch()
    return digest


def test_an_image_of_an_engine(engines: Path) -> None:
    digest = engine(engines, "docker")
    found = find_image("own:1", None, pulls=False)
    assert (found.engine, found.config.image_id) == ("docker", digest)
    assert (found.config.entrypoint, found.config.command) == (("/own",), ("-a",))
    assert found.config.architecture in ARCHITECTURES.values()
    assert found.archive_bytes == found.config.layer_bytes == 12345


def test_it_is_saved_once(engines: Path) -> None:
    engine(engines, "docker")
    found = find_image("own:1", None, pulls=False)
    steps: list[str] = []
    found.save(steps.append)
    found.save(steps.append)
    assert found.archive.read_bytes() == (engines / "own.tar").read_bytes()
    assert steps == ["docker saves own:1 (12.1 KiB)"]
    assert found.archive_bytes == found.archive.stat().st_size


def test_an_archive_of_another_id_is_refused(engines: Path) -> None:
    """Docker with containerd's image store gives an image the id of its manifest."""
    engine(engines, "docker")
    told = json.loads((engines / "docker.json").read_text())
    told[0]["Id"] = "sha256:" + "0" * 64
    (engines / "docker.json").write_text(json.dumps(told))
    with pytest.raises(PagecageError, match="has another id") as refused:
        find_image("own:1", None, pulls=False).save(lambda _: None)
    assert refused.value.hint == "docker save own:1 -o image.tar, then --image image.tar"
    assert list((engines / "saved").iterdir()) == []


@pytest.mark.parametrize("lacks", ["has", "runs"])
def test_the_second_engine_is_asked_too(engines: Path, lacks: str) -> None:
    engine(engines, "docker", **{lacks: False})
    engine(engines, "podman")
    assert find_image("own:1", None, pulls=False).engine == "podman"


def test_nothing_is_fetched_unasked(engines: Path) -> None:
    engine(engines, "docker", has=False)
    with pytest.raises(PagecageError, match="docker has no image 'own:1'") as refused:
        find_image("own:1", None, pulls=False)
    assert refused.value.hint == "docker pull own:1, or add --pull"
    assert "pull" not in (engines / "docker.log").read_text()


def test_it_is_fetched_if_asked(engines: Path) -> None:
    engine(engines, "docker", has=False)
    assert find_image("own:1", None, pulls=True).engine == "docker"


def test_a_pull_that_fails(engines: Path) -> None:
    engine(engines, "docker", has=False)
    with pytest.raises(PagecageError, match="docker pull other:1 ended with status 64"):
        find_image("other:1", None, pulls=True)


@pytest.mark.parametrize("driver", [None, "docker", "podman"])
def test_a_machine_without_an_engine(engines: Path, driver: str | None) -> None:
    with pytest.raises(PagecageError, match=f"this machine has no {driver or 'docker'}") as refused:
        find_image("own:1", driver, pulls=True)
    assert "docker save own:1 -o image.tar; then --image image.tar" in refused.value.hint
    assert engines


def test_an_engine_that_does_not_answer(engines: Path) -> None:
    engine(engines, "docker", runs=False)
    with pytest.raises(HostError, match="docker does not answer: Cannot connect") as refused:
        find_image("own:1", None, pulls=False)
    assert refused.value.hint.startswith("systemctl start docker")


def test_an_answer_in_another_form(engines: Path) -> None:
    engine(engines, "docker")
    (engines / "docker.json").write_text("[{}]")
    with pytest.raises(HostError, match="in an unknown form"):
        find_image("own:1", None, pulls=False)


WORDS = st.lists(st.text(st.characters(codec="utf-8")), max_size=4)


in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def archive(folder: Path, **config: Any) -> tuple[Path, str]:
    layers = [layer({"bin/own": b"x" * 1000}), layer({"data": b"y"})]
    path = folder / "image.tar"
    return path, write_archive(path, layers, config_of(layers, **config))


@in_one_folder
@given(st.none() | WORDS, st.none() | WORDS)
def test_entry_point_and_command(
    tmp_path: Path, entrypoint: list[str] | None, command: list[str] | None
) -> None:
    path, digest = archive(tmp_path, Entrypoint=entrypoint, Cmd=command)
    found = read_archive(path)
    assert found.image_id == digest
    assert found.entrypoint == tuple(entrypoint or ())
    assert found.command == tuple(command or ())
    check_platform(found, "x")


def test_layers_count_as_they_are_in_the_archive(tmp_path: Path) -> None:
    found = read_archive(archive(tmp_path)[0])
    assert found.layer_bytes == len(layer({"bin/own": b"x" * 1000})) + len(layer({"data": b"y"}))


def test_an_archive_may_be_compressed(tmp_path: Path) -> None:
    path, digest = archive(tmp_path)
    packed = tmp_path / "image.tar.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_archive(packed).image_id == digest


@in_one_folder
@given(st.data())
def test_a_damaged_archive_is_one_sentence(tmp_path: Path, data: st.DataObject) -> None:
    """Cut off, or with one changed byte, it is read or refused."""
    path, _ = archive(tmp_path, Entrypoint=["/own"])
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:place]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with suppress(PagecageError):
        read_archive(path)


@in_one_folder
@given(st.binary(max_size=2000))
def test_no_archive_at_all(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(PagecageError, match=r"archive of an image|has no manifest"):
        read_archive(path)


def with_members(path: Path, **members: Any) -> Path:
    with tarfile.open(path, "w") as file:
        for name, content in members.items():
            data = json.dumps(content).encode()
            entry = tarfile.TarInfo(name.replace("_", "."))
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"other": 1}, "so it is no image"),
        ({"oci-layout": {}}, "OCI's own format"),
        ({"manifest_json": []}, "has 0 images"),
        ({"manifest_json": [{"RepoTags": ["a:1"]}, {"RepoTags": None}]}, "has 2 images: a:1, \\?"),
        ({"manifest_json": {}}, "has 0 images"),
        ({"manifest_json": 3}, "a value has the wrong type"),
        ({"manifest_json": [{}]}, "lacks 'Config'"),
        ({"manifest_json": [{"Config": "nope", "Layers": []}]}, "nope"),
        ({"manifest_json": [{"Config": "c", "Layers": []}], "c": []}, "wrong type"),
        (
            {"manifest_json": [{"Config": "c", "Layers": []}], "c": {"config": {"Cmd": "sh"}}},
            "not lists of words",
        ),
    ],
)
def test_what_an_archive_lacks(tmp_path: Path, members: dict[str, Any], says: str) -> None:
    with pytest.raises(PagecageError, match=says):
        read_archive(with_members(tmp_path / "x.tar", **members))


def test_the_program_is_composed_as_an_engine_does(tmp_path: Path) -> None:
    found = read_archive(archive(tmp_path, Entrypoint=["/own", "-a"], Cmd=["-b"])[0])
    assert image_program(found, "x", (), None) == ("/own", "-a", "-b")
    assert image_program(found, "x", ("-c",), None) == ("/own", "-a", "-c")
    assert image_program(found, "x", (), ("/else",)) == ("/else",)
    assert image_program(found, "x", ("-c",), ("/else",)) == ("/else", "-c")
    with pytest.raises(PagecageError, match="no entry point and no command"):
        image_program(found, "x", (), ())


def test_another_processor_is_refused(tmp_path: Path) -> None:
    found = read_archive(archive(tmp_path)[0])
    with pytest.raises(PagecageError, match=r"is for linux/.*, and the host is linux/riscv64"):
        check_platform(found, "x", "riscv64")


def test_files_of_a_container_are_carried_to_another_host(engines: Path) -> None:
    """They go to the folder that is removed after a run; this machine's engine reads them here."""
    engine(engines, "docker")
    found = find_image("own:1", None, pulls=False)
    variables = engines / "own.env"
    variables.write_text("A=b\n")
    there: Any = SimpleNamespace(name="vm", data_dir="/data")
    sent = container_files(found, (), (variables,), there)
    assert sent.image.env_files == ("/data/replay/env-1",)
    assert [(file.source, file.name) for file in sent.carried[1:]] == [(str(variables), "env-1")]
    assert sent.directory == "/data/replay"
    here: Any = SimpleNamespace(name="local")
    assert container_files(found, (), (variables,), here).carried == ()
