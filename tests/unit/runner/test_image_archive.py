"""Archives of images: what they say, and files that are none."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagecage.errors import PagecageError
from pagecage.runner.images import check_platform, image_program, read_archive
from tests.builders.image_archive import config_of, layer, write_archive

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
