"""Containers of images: the engine's arguments, and the directories of layers."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.drivers.container import (
    layer_directories,
    mount_option,
    own_name,
    run_image_command,
    write_renamed,
    write_variables,
)
from pagecage.agent.drivers.driver import LaunchContext
from pagecage.errors import HostError
from pagecage.linux.block_device import Disk
from pagecage.linux.cgroup import Cgroup
from pagecage.linux.systemd import Systemd
from pagecage.linux.trial_processes import CgroupProcesses
from pagecage.model.cage import Cage
from pagecage.model.json_codec import from_json, to_json
from pagecage.model.trial import (
    BindMount,
    CommandSpec,
    ImageSpec,
    Variable,
    Workload,
    recorded_trial,
    trial_to_json,
)
from tests.builders.image_archive import config_of, layer, write_archive
from tests.builders.known import known
from tests.fake_host.machine import make_trial

PATHS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1)
IMAGES = st.builds(
    ImageSpec,
    st.text(),
    st.text(),
    st.text(),
    st.integers(0),
    st.none() | st.text(),
    st.lists(st.builds(Variable, st.text(), st.text())).map(tuple),
    st.lists(st.text()).map(tuple),
    st.lists(st.builds(BindMount, st.text(), st.text(), st.booleans())).map(tuple),
    st.lists(st.integers(1, 65535)).map(tuple),
    st.none() | st.text(),
    st.none() | st.text(),
)
IMAGE = ImageSpec("own:1", "sha256:0123", "amd64", 1000)
CONTEXT = LaunchContext(
    Systemd(False, 257),
    "pagecage-r1_x.1.slice",
    CgroupProcesses(Systemd(False, 257), "pagecage-r1_x.1.slice", Cgroup(unified=Path("/cgroup"))),
    Cage("x", {}),
    Disk("vdb", "254:16", "/dev/vdb", "ext4", "/data"),
    Path("/run/bin"),
    Path("/run"),
    Path("/data"),
    environment=("HOME", "SECRET"),
)


@given(IMAGES)
def test_an_image_survives_json(image: ImageSpec) -> None:
    assert from_json(ImageSpec, to_json(image)) == image


@given(PATHS, PATHS, st.booleans())
def test_a_mount_is_one_line_of_csv(source: str, target: str, is_read_only: bool) -> None:
    [fields] = csv.reader([mount_option(BindMount(source, target, is_read_only))], strict=True)
    own = ["type=bind", f"source={source}", f"target={target}"]
    assert fields == [*own, *(["readonly"] if is_read_only else [])]


def test_the_container_is_the_customers_but_for_slice_network_and_gate() -> None:
    words = run_image_command("docker", IMAGE, CONTEXT, ["/own", "-a"])
    assert words[-3:] == ["sha256:0123", "/own", "-a"]
    options = set(words[2:-3])
    assert "--cgroup-parent=pagecage-r1_x.1.slice" in options
    assert "--entrypoint=/.pagecage-gate" in options
    assert "--mount=type=bind,source=/run/bin/pcgate,target=/.pagecage-gate,readonly" in options
    assert {"--pull=never", "--network=host", "--rm"} < options
    assert not [word for word in options if word.startswith(("--env", "--cap", "--pid", "--user"))]


def test_settings_of_the_container() -> None:
    image = ImageSpec(
        *("own:1", "sha256:0123", "amd64", 1000),
        environment=(Variable("A", "b c"),),
        env_files=("/data/replay/env-1",),
        mounts=(BindMount("/data/replay/volume-1", "/srv", is_read_only=True),),
        directory="/srv",
        user="1000:0",
    )
    words = run_image_command("podman", image, CONTEXT, ["/own"])
    assert words[:3] == ["podman", "run", "--cgroups=no-conmon"]
    assert words[words.index("--entrypoint=/.pagecage-gate") + 1 :] == [
        "--mount=type=bind,source=/run/bin/pcgate,target=/.pagecage-gate,readonly",
        "--mount=type=bind,source=/data/replay/volume-1,target=/srv,readonly",
        "--env-file=/data/replay/env-1",
        "--env-file=/run/trials/pagecage-run-r1_x.1.env",
        "--workdir=/srv",
        "--user=1000:0",
        "sha256:0123",
        "/own",
    ]


LOWER = {"UpperDir": "/l/3/diff", "LowerDir": "/l/2/diff:/l/1/diff", "WorkDir": "/l/3/work"}


@pytest.mark.parametrize(
    ("engine", "name", "data", "layers"),
    [
        ("docker", "overlay2", LOWER, ("/l/3/diff", "/l/2/diff", "/l/1/diff")),
        ("podman", "overlay", {"UpperDir": "/l/1/diff"}, ("/l/1/diff",)),
    ],
    ids=["three", "one"],
)
def test_the_uppermost_layer_comes_first(
    engine: str, name: str, data: dict[str, str], layers: tuple[str, ...]
) -> None:
    found = layer_directories(engine, {"GraphDriver": {"Name": name, "Data": data}})
    assert found == tuple(map(Path, layers))


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        ({"Name": "vfs", "Data": None}, "docker keeps images with the storage driver vfs"),
        ({"Name": "overlay2", "Data": None}, "overlay2, which does not tell"),
        (None, "the storage driver containerd's"),
    ],
)
def test_a_store_without_directories_of_layers_is_refused(graph: object, says: str) -> None:
    with pytest.raises(HostError, match=says):
        layer_directories("docker", {"GraphDriver": graph})


def renamed(archive: Path, image_id: str, out: Path) -> dict[str, bytes]:
    with out.open("wb") as file:
        write_renamed(archive, image_id, file)
    with tarfile.open(out) as written:
        return {member.name: known(written.extractfile(member)).read() for member in written}


def test_only_the_planned_image_is_loaded_and_under_no_name_of_the_archive(tmp_path: Path) -> None:
    """Neither other images of the archive, nor the lists of names that other engines read."""
    layers = [layer({"own": b"1"}), layer({"own": b"2"})]
    tags = ["localhost/pagecage-root:1", "debian:latest"]
    given = tmp_path / "given.tar"
    image_id = write_archive(given, layers, config_of(layers), tags)
    other = {"Config": "other.json", "RepoTags": ["debian:12"], "Layers": []}
    with tarfile.open(given) as archive:
        contents = json.loads(known(archive.extractfile("manifest.json")).read())
    more = {
        "other.json": b"{}",
        "repositories": b'{"debian": {"latest": "0"}}',
        "index.json": b'{"manifests": [{"annotations": {"io.containerd.image.name": "debian"}}]}',
        "manifest.json": json.dumps([other, *contents]).encode(),
        "../../escaped": b"x",
    }
    with tarfile.open(given, "a") as archive:
        for name, data in more.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    files = renamed(given, image_id, tmp_path / "out.tar")
    config = f"{image_id.removeprefix('sha256:')}.json"
    assert set(files) == {"manifest.json", config, "0/layer.tar", "1/layer.tar"}
    [entry] = json.loads(files["manifest.json"])
    assert entry["RepoTags"] == [own_name(image_id)]
    assert own_name(image_id).startswith("localhost/pagecage-image:")
    assert [files[name] for name in entry["Layers"]] == layers
    assert b"debian" not in b"".join(files.values())


@pytest.mark.parametrize("mode", ["w:gz", "w:xz"])
def test_a_layer_that_is_a_link_and_a_compressed_archive(
    tmp_path: Path, mode: Literal["w:gz", "w:xz"]
) -> None:
    """docker save writes a link where two images share a layer."""
    layers = [layer({"own": b"1"})]
    plain, packed = tmp_path / "plain.tar", tmp_path / "packed.tar"
    image_id = write_archive(plain, layers, config_of(layers))
    with tarfile.open(plain) as source, tarfile.open(packed, mode) as target:
        for member in source:
            file = source.extractfile(member)
            if member.name == "0/layer.tar":
                link = tarfile.TarInfo(member.name)
                link.type, link.linkname = tarfile.SYMTYPE, "../shared/layer.tar"
                target.addfile(link)
                member.name = "shared/layer.tar"
            target.addfile(member, file)
    assert renamed(packed, image_id, tmp_path / "out.tar")["0/layer.tar"] == layers[0]


def test_an_archive_without_the_planned_image_is_refused(tmp_path: Path) -> None:
    write_archive(tmp_path / "given.tar", [], config_of([]))
    with pytest.raises(ValueError, match="does not hold the image"):
        renamed(tmp_path / "given.tar", "sha256:" + 64 * "0", tmp_path / "out.tar")


def test_values_of_variables_are_for_one_user_and_not_in_the_plan(tmp_path: Path) -> None:
    image = ImageSpec("own:1", "sha256:0", "amd64", 1, environment=(Variable("PW", "secret"),))
    (tmp_path / "x.env").write_text("old")
    write_variables(image, tmp_path / "x.env")
    assert (tmp_path / "x.env").read_text() == "PW=secret\n"
    assert (tmp_path / "x.env").stat().st_mode & 0o777 == 0o600
    workload = Workload("sh", (), "command", command=CommandSpec(is_literal=True, image=image))
    trial = make_trial(driver="docker", collectors=(), workload=workload)
    assert "secret" in json.dumps(trial_to_json(trial)), "for the agent"
    assert "secret" not in json.dumps(recorded_trial(trial))
    assert '"PW"' in json.dumps(recorded_trial(trial))
