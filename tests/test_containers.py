"""Container images: recipes that build without a registry and without root, and reproducible
bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import shutil
import sys
import tarfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from pagecage.hosts.vm.image import FOLDER_VARIABLE, packed_directory, read_versions
from pagecage.process import Completed, run
from tests.harness_store import IMAGE, STORE
from tests.tree import ROOT
from tests.verbs import VERBS

RECIPES = sorted((ROOT / "containers").glob("*.Containerfile"))
BIN = Path(sys.prefix) / "bin"


def stages(recipe: Path) -> list[str]:
    """Return the text of each stage, from its FROM on."""
    return re.split(r"^(?=FROM )", recipe.read_text(), flags=re.MULTILINE)[1:]


def users(stage: str) -> list[str]:
    return re.findall(r"^USER (\S+)$", stage, re.MULTILINE)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_what_an_image_stands_on_is_an_argument(recipe: Path) -> None:
    bases = [stage.split()[1] for stage in stages(recipe)]
    own = set(re.findall(r"^FROM \S+ AS (\S+)$", recipe.read_text(), re.MULTILINE))
    assert set(bases) <= {"${BASE}", "scratch", *own}, (
        "a version is written in containers/versions.env alone"
    )


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_nobody_in_an_image_is_root(recipe: Path) -> None:
    for stage in (
        stage for stage in stages(recipe) if re.search("^(CMD|ENTRYPOINT) ", stage, re.MULTILINE)
    ):
        [user] = users(stage)
        assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user), (
            "by number, since whoever runs it may forbid names"
        )


def arguments(stage: str) -> set[str]:
    return set(re.findall(r"^ARG (\w+)", stage, re.MULTILINE))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_what_fetches_packages_is_told_of_certificates_and_the_image_is_not(recipe: Path) -> None:
    reported = set(
        re.findall(r"--build-arg (\w+)=/mnt/ca\.crt", (ROOT / "tools/build-images").read_text())
    )
    wanted = {"pip": {"PIP_CERT"}, "build-workloads": {"CARGO_HTTP_CAINFO"}}
    assert set.union(*wanted.values()) == reported
    *earlier, last = stages(recipe)
    for stage in earlier:
        steps = " ".join(re.findall(r"^RUN (?:.*\\\n)*.*", stage, re.MULTILINE))
        scripts = re.findall(r"^RUN /([a-z-]+)", stage, re.MULTILINE)
        steps += " ".join((ROOT / "containers" / name).read_text() for name in scripts)
        assert set().union(
            *(names for step, names in wanted.items() if step in steps)
        ) <= arguments(stage)
    assert not arguments(last) & reported


def test_versions_are_where_they_are_looked_for() -> None:
    assert {"BASE_SUITE", "IMAGE_EPOCH", "GUEST_SUITE"} <= set(read_versions(ROOT))


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "containers/compose.yaml").read_text()))


def test_the_compose_file_obeys_its_specification() -> None:
    done = run(
        [
            BIN / "check-jsonschema",
            "--builtin-schema",
            "vendor.compose-spec",
            "containers/compose.yaml",
        ],
        cwd=ROOT,
    )
    assert done.ok


def test_the_notebook_server_is_reached_from_this_machine_alone_and_by_a_token() -> None:
    [service] = compose()["services"].values()
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["environment"]["JUPYTER_TOKEN"].startswith("${JUPYTER_TOKEN:?")
    assert all(volume["read_only"] for volume in service["volumes"])


def test_the_lock_of_the_notebook_server_has_hashes_and_names_no_index() -> None:
    text = (ROOT / "requirements/notebook.txt").read_text()
    pinned = re.findall(r"^[a-z0-9][\w.-]*==", text, re.MULTILINE)
    assert "jupyterlab==" in pinned
    assert "--hash=sha256:" in text
    assert "index" not in re.sub(r"#.*", "", text)


@pytest.fixture(scope="module")
def sbom() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools/sbom"))


@pytest.mark.parametrize("venv", ["opt/venv", "opt/pagecage"])
def test_a_bill_of_materials_lists_debians_and_pythons_packages(
    sbom: dict[str, Any], tmp_path: Path, venv: str
) -> None:
    status = tmp_path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(
        "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.41-12\n\n"
        "Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n\n"
    )
    metadata = tmp_path / venv / "lib/python3.13/site-packages/Great_Tables-1.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: Great_Tables\nVersion: 1\n")
    bill = sbom["bill"]("notebook", tmp_path)
    purls = [one["purl"] for one in bill["components"]]
    assert purls == ["pkg:deb/debian/libc6@2.41-12?arch=amd64", "pkg:pypi/great-tables@1"]
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert json.dumps(bill) == json.dumps(sbom["bill"]("notebook", tmp_path)), "it has a date in it"


def test_the_programs_in_rust_bring_their_crates(sbom: dict[str, Any], tmp_path: Path) -> None:
    purls = [one["purl"] for one in sbom["bill"]("workloads", tmp_path)["components"]]
    assert any(purl.startswith("pkg:cargo/clap@") for purl in purls)
    assert not any("pcread" in purl for purl in purls), "our own are the image itself"


def built(name: str, folder: Path) -> str:
    """Build an image in a store of its own; return the hash of all files, owners and modes."""
    for part in ("store", "run"):
        shutil.rmtree(ROOT / "build/images" / part, ignore_errors=True)
    run(
        [ROOT / "tools/build-images", name],
        env={"ENGINE": "buildah", "PROGRAMS": "prebuilt"},
        timeout_seconds=1800,
    )
    archive = folder / f"{name}.tar"
    run(
        [
            "buildah",
            *STORE,
            "push",
            f"localhost/pagecage-{name}:latest",
            f"docker-archive:{archive}",
        ],
        timeout_seconds=600,
    )
    return contents(archive)


def contents(archive: Path) -> str:
    """Return the hash of the layers: their tars have every byte, owner, mode and date."""
    with tarfile.open(archive) as outer:
        layers = sorted(name for name in outer.getnames() if name.endswith(".tar"))
        sums = [
            hashlib.sha256(member.read()).hexdigest()
            for name in layers
            if (member := outer.extractfile(name))
        ]
    assert sums
    return hashlib.sha256("".join(sums).encode()).hexdigest()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["base", "workloads"])
def test_the_same_input_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    first = built(name, tmp_path)
    (ROOT / "build/images/base.tar").unlink(missing_ok=True)
    (tmp_path / f"{name}.tar").unlink()
    assert built(name, tmp_path) == first


MOST_BYTES = 700_000_000
"""The bound of docs/CONTAINERS.md, uncompressed and with the guest."""
RECIPE = (ROOT / "containers/harness.Containerfile").read_text()
SOMEBODY = 1234


def test_what_the_installation_of_the_harness_imports_and_calls_exists() -> None:
    """The build itself takes minutes, and runs with the long tests."""
    script = (ROOT / "containers/install-harness").read_text()
    modules = re.findall(
        r"\bpagecage\.[\w.]+", " ".join(re.findall(r"-c 'import ([^']+)'", script))
    )
    assert [name for name in modules if find_spec(name) is None] == []
    called = set(re.findall(r'bin/pagecage" (\w+)', script))
    assert called >= {"list", "run", "import"}
    assert called <= set(VERBS)


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
V2_ALONE: list[str | Path] = [
    *("unshare", "--mount", "sh", "-c"),
    *('mount --bind /sys/fs/cgroup/unified /sys/fs/cgroup && exec "$@"', "sh"),
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
        *(*hybrid, "podman", *STORE, "--cgroup-manager=cgroupfs", "run", "--rm"),
        *("--cgroups=disabled", *limits),
    ]


def image_bytes() -> int:
    """Return the size of the image as its engine states it."""
    program = ("docker",) if "docker" in engine() else ("podman", *STORE)
    return int(run([*program, "image", "inspect", "--format", "{{.Size}}", IMAGE]).stdout)


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
