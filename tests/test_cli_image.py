"""`pagecage replay --image` as a user meets it: what is refused, and what a dry run shows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.model.plan import plan_to_json
from pagecage.planning.options import ImageOptions, ReplayOptions
from pagecage.planning.replay_plan import plan_for_image
from tests.builders.image_archive import config_of, layer, write_archive
from tests.checkout import pagecage, refused

COMPOSE = """
services:
  web:
    image: registry.example/web:1
    command: --port 80
    environment: {MODE: fast, NOWHERE: null}
    env_file: own.env
    volumes: [./data:/data:ro, "state:/state"]
    ports: ["8080:80"]
    working_dir: /srv
    user: "1000"
    depends_on: [db]
    mem_limit: 64m
    pids_limit: 100
    blkio_config: {device_read_bps: [{path: /dev/sda, rate: 2mb}]}
  db: {image: postgres:16}
"""
VM = ("--host", "vm", "--dry-run")


@pytest.fixture
def image(top: Path) -> Iterator[str]:
    """An archive in the checkout, a directory and a Compose file."""
    layers = [layer({"own": b"x"})]
    write_archive(top / "own.tar", layers, config_of(layers, Entrypoint=["/own"], Cmd=["-a"]))
    (top / "data").mkdir(exist_ok=True)
    (top / "data/file").write_text("x")
    (top / "own.env").write_text("QUOTED='a b'\n")
    (top / "compose.yaml").write_text(COMPOSE)
    yield "own.tar"
    shutil.rmtree(top / "data")


def dry(top: Path, *words: str) -> tuple[str, str]:
    """The plan and the messages of a dry run."""
    done = pagecage(top, "replay", *words)
    assert done.status == 0, done.stderr
    assert not (top / "runs").exists()
    return done.stdout, done.stderr


def test_a_dry_run_shows_how_the_image_is_loaded_and_run(top: Path, image: str) -> None:
    shown, _ = dry(top, "customer", "--image", image, *VM)
    assert "replay-own-tar on vm: 2 trials" in shown
    assert "\ndocker load\n" in shown
    assert "--entrypoint=/.pagecage-gate" in shown
    assert "/own -a\n" in shown
    assert "cache cold" in shown


def test_arguments_replace_those_of_the_image(top: Path, image: str) -> None:
    shown, _ = dry(top, "customer", "--image", image, *VM, "--", "-b", "c d")
    assert "/own -b 'c d'\n" in shown


def test_settings_reach_the_container(top: Path, image: str) -> None:
    options = ("-e", "A=b c", "--env-file", "own.env", "--volume", "./data:/srv:ro", "-p", "80:80")
    shown, _ = dry(top, "customer", "--image", image, *options, "--driver", "podman", *VM)
    assert "podman load" in shown
    assert "--mount=type=bind,source=/data/replay/volume-1,target=/srv,readonly" in shown
    assert "--env-file=/data/replay/env-1 --env-file=SPOOL/trials/pagecage-run-" in shown
    assert "b c" not in shown, "a value may be a secret"


def test_a_volume_that_may_be_written_is_a_restored_copy(top: Path, image: str) -> None:
    shown, _ = dry(top, "customer", "--image", image, "--volume", "./data:/srv", *VM)
    assert "source=/data/replay/volumes/data/volume-1,target=/srv" in shown


def test_a_compose_file_brings_its_own_limits(top: Path, image: str) -> None:
    words = ("--compose", "compose.yaml", "--service", "web", "--image", image, *VM)
    shown, said = dry(top, *words)
    assert "r1_compose" in shown
    assert "MemoryMax=67108864" in shown
    assert "IOReadBandwidthMax=2097152" in shown
    assert ".env --workdir=/srv --user=1000" in shown
    assert shown.count("/own --port 80\n") == 2
    for note in (
        "depends_on: db is not started",
        "the engine keeps the files of volume state",
        "port 80 is not mapped to 8080",
        "the variable NOWHERE is not set here",
        "limit not imported: pids_limit = 100",
    ):
        assert note in said


def test_a_compose_file_beside_another_cage(top: Path, image: str) -> None:
    words = ("--compose", "compose.yaml", "--service", "web", "--image", image, *VM)
    shown, _ = dry(top, "customer", *words)
    assert "r1_compose" not in shown
    shown, _ = dry(top, "customer", "--cage", "compose", "--no-control", *words)
    assert {"r1_customer", "r1_compose"} < set(shown.split())
    assert "r1_uncaged" not in shown


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (("--image", "nope.tar"), "'nope.tar' does not exist", "docker save"),
        (("--image", "data"), "'data' is a directory", "docker save"),
        (("--image", "own.env"), "own.env is not an archive of an image", "docker save"),
        (("--image", ""), "'' is not the name of an image", "docker images"),
        (("--image", "own.tar", "--cold", "data"), "--cold does not apply", "--volume"),
        (("--image", "own.tar", "--copy", "data"), "--copy does not apply", "--volume"),
        (("--image", "own.tar", "--driver", "docker-api"), "cannot run an image", "podman"),
        (("--image", "own.tar", "--volume", "data:/x"), "is a named volume", "./data:/x"),
        (("--image", "own.tar", "-p", "80:81"), "cannot be mapped", "--publish 81:81"),
        (("--image", "own.tar", "-e", "=x"), "is not NAME=VALUE", "--env"),
        (("--image", "own.tar", "--env-file", "nope"), "'nope' cannot be read", "ls -l nope"),
        (("--env", "A=b"), "need an image", "--image NAME"),
        (("--service", "web"), "--service names a service", "--compose FILE"),
        (("--compose", "nope"), "'nope' cannot be read", "ls -l nope"),
        (("--compose", "own.env"), "own.env", ""),
        (("--compose", "compose.yaml"), "has 2 services: web, db", "--service web"),
        (("--compose", "compose.yaml", "--service", "wab"), "no service 'wab'", "web"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    top: Path, image: str, words: tuple[str, ...], says: str, hint: str
) -> None:
    said = refused(top, "replay", "customer", *words, "--host", "vm")
    assert says in said
    assert hint in said
    assert image


def test_a_service_without_limits_needs_a_cage(top: Path, image: str) -> None:
    words = ("--compose", "compose.yaml", "--service", "db", "--image", image, "--host", "vm")
    assert "no limits in its Compose file" in refused(top, "replay", *words)


def test_another_architecture(top: Path) -> None:
    layers = [layer({"own": b"x"})]
    config = {**config_of(layers, Cmd=["/own"]), "architecture": "s390x"}
    write_archive(top / "own.tar", layers, config)
    said = refused(top, "replay", "customer", "--image", "own.tar", "--host", "vm")
    assert "is for linux/s390x, and the host is linux/" in said
    assert "docker pull --platform linux/" in said


def test_a_value_of_a_variable_is_nowhere_in_the_plan(
    top: Path, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is only in the trials that the agent gets."""
    monkeypatch.chdir(top)
    secret = "s3cret-value"
    options = ImageOptions(image=image, env=(f"PW={secret}",))
    typed = f"pagecage replay customer --image {image} -e PW={secret}"
    told: list[str] = []
    plan, host, _ = plan_for_image(
        ["customer"], (), ReplayOptions(host="vm"), options, typed, told.append, has_control=True
    )
    host.stop()
    assert secret in repr(plan.trials)
    assert secret not in json.dumps(plan_to_json(plan))
    assert not [line for line in told if secret in line]
