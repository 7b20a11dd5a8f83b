"""Images in the guest, where Docker builds without a network: the workloads and the harness."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagecage.hosts.vm.vm_host import VmHost
from pagecage.process import Completed, run
from tests.harness_store import IMAGE, STORE
from tests.tree import ROOT

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(3600)]
PROGRAMS = Path("build/host/bin")
NAME = "pagecage-workloads"


def shell(host: VmHost, script: str) -> Completed:
    return run(host.command(["sh", "-ec", script]), check=False, timeout_seconds=900)


def output_of(host: VmHost, script: str) -> str:
    done = shell(host, script)
    assert done.ok, done.stderr
    return done.stdout


def test_docker_builds_the_workloads_and_nobody_in_them_is_root(host: VmHost) -> None:
    context = f"{host.spool_dir}/image"
    host.push([ROOT / "containers/workloads.Containerfile"], context)
    host.push(sorted((ROOT / PROGRAMS).iterdir()), f"{context}/{PROGRAMS}")
    built = f"docker build --quiet --target prebuilt -f workloads.Containerfile -t {NAME} ."
    try:
        output_of(host, f"systemctl start docker; cd {context}; {built}")
        assert "--expect-sidecar" in output_of(
            host, f"docker run --rm --network none {NAME} --help"
        )
        user = output_of(host, f"docker image inspect --format '{{{{.Config.User}}}}' {NAME}")
        assert user.strip() == "65532:65532"
    finally:
        output_of(host, f"{removal(NAME)}; rm -rf {context}")


def removal(image: str) -> str:
    return f"docker image rm --force {image} > /dev/null; systemctl stop docker.socket docker"


ARCHIVE = "harness.tar"
SOMEBODY = 4321


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The image as `docker load` takes it, built if it is not there."""
    if not run(["buildah", *STORE, "inspect", "--type", "image", IMAGE], check=False).ok:
        run([ROOT / "tools/build-images", "harness"], timeout_seconds=3000)
    path = tmp_path / ARCHIVE
    run(["buildah", *STORE, "push", IMAGE, f"docker-archive:{path}:{IMAGE}"], timeout_seconds=600)
    return path


@pytest.fixture
def loaded(host: VmHost, archive: Path) -> Iterator[str]:
    """A folder of the guest for results; the image is in its engine."""
    folder = f"{host.data_dir}/harness"
    host.push([archive], folder)
    archive.unlink()
    output_of(
        host,
        f"systemctl start docker; docker load -q -i {folder}/{ARCHIVE}; rm {folder}/{ARCHIVE};"
        f" install -d -o {SOMEBODY} -g {SOMEBODY} {folder}/runs",
    )
    yield f"{folder}/runs"
    shell(host, f"{removal(IMAGE)}; rm -rf {folder}")


def test_docker_runs_it_for_any_user_without_a_network(host: VmHost, loaded: str) -> None:
    user = f"--user {SOMEBODY}:{SOMEBODY}"
    docker = f"docker run --rm --network none {user} -v {loaded}:/work/runs {IMAGE}"
    listed = shell(host, f"{docker} list --json")
    assert {"smoke", "constrained-random"} <= {row["name"] for row in json.loads(listed.stdout)}
    examined = shell(host, f"{docker} doctor")
    assert examined.status in (0, 3), examined.stderr
    assert "Traceback" not in examined.stdout + examined.stderr
    measured = shell(
        host, f"{docker} run smoke --host local --dataset smoke --treatment cage=uncaged"
    )
    assert measured.ok, measured.stderr
    records = shell(host, f"cat {loaded}/latest-smoke/records.jsonl").stdout.splitlines()
    assert {json.loads(line)["outcome"] for line in records} == {"ok"}
    assert "</html>" in shell(host, f"tail -c 200 {loaded}/latest-smoke/report.html").stdout


def test_a_privileged_container_holds_limits_in_its_own_cgroup_namespace(
    host: VmHost, loaded: str
) -> None:
    """Its root group has processes, which the refusal's command moves out of the way."""
    docker = (
        "docker run --rm --network none --privileged --cgroupns private --user 0:0"
        f" -v {Path(loaded).parent}:/data -e PAGECAGE_RUNS=/data/root-runs --entrypoint sh {IMAGE}"
    )
    smoke = "pagecage run smoke --host local --dataset smoke --data-dir /data/held"
    run_smoke = f"mkdir -p /data/root-runs; {smoke}"
    refused = shell(host, f"{docker} -ec '{run_smoke}'")
    assert refused.status == 3
    assert "is a cgroup namespace's root with processes" in refused.stderr
    fix = refused.stderr.partition("fix: ")[2].partition("\n")[0]
    assert fix.startswith("mkdir /sys/fs/cgroup/init")
    held = shell(host, f"{docker} -ec {shlex.quote(f'{fix}; {run_smoke}')}")
    assert held.ok, held.stderr
    found = f"{Path(loaded).parent}/root-runs/latest-smoke/records.jsonl"
    records = [json.loads(line) for line in shell(host, f"cat {found}").stdout.splitlines()]
    assert {record["outcome"] for record in records} >= {"ok"}
    caged = [record["cage"] for record in records if record["cage"]["requested"]]
    assert caged
    assert all(cage["expected"].items() <= cage["read_back"].items() for cage in caged)
    assert {cage["driver"]["name"] for cage in caged} == {"cgroupfs"}


def test_a_folder_of_somebody_else_is_refused(host: VmHost, loaded: str) -> None:
    done = shell(host, f"docker run --rm --network none -v {loaded}:/work/runs {IMAGE} list")
    assert done.status == 3
    assert f"fix: docker run --user {SOMEBODY}:{SOMEBODY}" in done.stderr
