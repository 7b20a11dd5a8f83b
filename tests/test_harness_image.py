"""The image of the harness: its start script and, in the long run, its build and a measurement."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pagecage.hosts.vm.image import FOLDER_VARIABLE, packed_directory
from pagecage.process import Completed, run
from tests.harness_store import IMAGE, STORE
from tests.tree import ROOT

MOST_BYTES = 700_000_000
"""The bound of docs/CONTAINERS.md, uncompressed and with the guest."""
RECIPE = (ROOT / "containers/harness.Containerfile").read_text()
SOMEBODY = 1234


@pytest.fixture
def work() -> Iterator[Path]:
    """A folder like /work of the image, with a pagecage that prints its arguments; other users may
    enter it.
    """
    with TemporaryDirectory() as folder:
        work = Path(folder)
        work.chmod(0o755)
        for name in ("bin", "runs", "cache"):
            (work / name).mkdir()
        shutil.copy(ROOT / "containers/start-harness", work / "bin")
        (work / "bin/pagecage").write_text('#!/bin/sh\necho "pagecage $*"\n')
        (work / "bin/pagecage").chmod(0o755)
        yield work


def start(work: Path) -> Completed:
    """Run the script as a user who is not root, because root may write anywhere."""
    nobody = (
        ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups"]
        if os.geteuid() == 0
        else []
    )
    folders = {"PAGECAGE_RUNS": f"{work}/runs", "XDG_CACHE_HOME": f"{work}/cache"}
    path = {"PATH": f"{work}/bin:{os.environ['PATH']}"}
    return run([*nobody, "start-harness", "run", "smoke"], check=False, env={**folders, **path})


def test_a_container_does_what_it_is_told(work: Path) -> None:
    for name in ("runs", "cache"):
        (work / name).chmod(0o1777)
    done = start(work)
    assert (done.stdout, done.status) == ("pagecage run smoke\n", 0), done.stderr


@pytest.mark.parametrize("name", ["runs", "cache", "cache/pagecage"])
def test_a_mounted_folder_of_somebody_else_is_named_with_its_mend(work: Path, name: str) -> None:
    for folder in (work / "runs", work / "cache", work / "cache/pagecage"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
    (work / name).chmod(0o555)
    done = start(work)
    owner = f"{os.getuid()}:{os.getgid()}"
    assert done.status == 3
    assert f"/{name} belongs to {owner}" in done.stderr
    assert f"fix: docker run --user {owner}\n" in done.stderr


def test_the_packed_guest_gets_into_the_image_where_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [folder] = re.findall(r"^COPY build/images/guest (\S+)$", RECIPE, re.MULTILINE)
    [named] = re.findall(rf"{FOLDER_VARIABLE}=(\S+)", RECIPE)
    assert named == folder
    monkeypatch.setenv(FOLDER_VARIABLE, named)
    assert packed_directory("key") == Path(folder, "key")
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert {"!/build/images/guest", "!/build/images/wheel"} <= set(kept)


def test_its_last_stage_is_one_layer_of_the_system() -> None:
    """Files that a stage removes from the one below it still take space."""
    last = RECIPE[RECIPE.rindex("\nFROM ") :]
    assert last.startswith("\nFROM scratch\n")
    assert "apt-get" not in last


# crun supports either cgroup v1 or v2. If both are mounted, the container sees v2, in its own mount
# namespace.
V2_ALONE = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    'mount --bind /sys/fs/cgroup/unified /sys/fs/cgroup && exec "$@"',
    "sh",
]


def engine() -> list[str | Path]:
    """Return `docker run` or its equivalent, with the images of tools/build-images. Fails if there
    is none.
    """
    if shutil.which("docker") and run(["docker", "info"], check=False).ok:
        return ["docker", "run", "--rm"]
    if not shutil.which("podman"):
        pytest.fail(
            "neither a Docker engine nor podman is here: apt-get install podman crun", pytrace=False
        )
    hybrid = V2_ALONE if Path("/sys/fs/cgroup/unified").is_dir() and os.geteuid() == 0 else []
    limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
    return [
        *hybrid,
        "podman",
        *STORE,
        "--cgroup-manager=cgroupfs",
        "run",
        "--rm",
        "--cgroups=disabled",
        *limits,
    ]


def image_bytes() -> int:
    """Return the size of the image as its engine states it."""
    if "docker" in engine():
        argv = ["docker", "image", "inspect", "--format", "{{.Size}}", IMAGE]
    else:
        argv = ["podman", *STORE, "image", "inspect", "--format", "{{.Size}}", IMAGE]
    return int(run(argv).stdout)


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_the_image_measures_without_a_network_for_any_user(tmp_path: Path) -> None:
    container = [*engine(), "--network=none"]
    run([ROOT / "tools/build-images", "harness"], timeout_seconds=3600)
    assert image_bytes() < MOST_BYTES
    assert re.search(
        r"^constrained-random\b", run([*container, IMAGE, "list"]).stdout, re.MULTILINE
    )
    runs = tmp_path / "runs"
    runs.mkdir(mode=0o755)
    if os.geteuid() == 0:
        os.chown(runs, SOMEBODY, SOMEBODY)
    of_theirs = [
        *container,
        "--user",
        f"{runs.stat().st_uid}:{runs.stat().st_gid}",
        "--volume",
        f"{runs}:/work/runs",
    ]
    run([*of_theirs, IMAGE, "run", "smoke", "--dataset", "smoke"], timeout_seconds=1800)
    latest = runs / "latest-smoke"
    outcomes = [
        json.loads(line)["outcome"] for line in (latest / "records.jsonl").read_text().splitlines()
    ]
    assert outcomes
    assert set(outcomes) == {"ok"}
    assert "</html>" in (latest / "report.html").read_text()
