"""Containers of images: the engine's arguments, and the directories of layers."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.agent.drivers.driver import LaunchContext
from pagecage.agent.drivers.image_container import mount_option, run_image_command
from pagecage.agent.drivers.image_layers import layer_directories
from pagecage.agent.system.block_device import Disk
from pagecage.agent.system.cgroup import Cgroup
from pagecage.agent.system.systemd import Systemd
from pagecage.agent.system.trial_processes import CgroupProcesses
from pagecage.errors import HostError
from pagecage.model.cage import Cage
from pagecage.model.container.image import (
    BindMount,
    ImageSpec,
    Variable,
    image_from_json,
    image_to_json,
)

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
    assert image_from_json(image_to_json(image)) == image


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
        "--env=A=b c",
        "--workdir=/srv",
        "--user=1000:0",
        "sha256:0123",
        "/own",
    ]


def test_the_uppermost_layer_comes_first() -> None:
    data = {"UpperDir": "/l/3/diff", "LowerDir": "/l/2/diff:/l/1/diff", "WorkDir": "/l/3/work"}
    found = layer_directories("docker", {"GraphDriver": {"Name": "overlay2", "Data": data}})
    assert found == (Path("/l/3/diff"), Path("/l/2/diff"), Path("/l/1/diff"))


def test_an_image_of_one_layer() -> None:
    data = {"UpperDir": "/l/1/diff"}
    found = layer_directories("podman", {"GraphDriver": {"Name": "overlay", "Data": data}})
    assert found == (Path("/l/1/diff"),)


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
