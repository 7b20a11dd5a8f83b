"""The recipe of buildah, built by Docker in the guest, which has no network."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagecage.hosts.vm.vm_host import VmHost
from pagecage.process import run
from tests.tree import ROOT

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(900)]
PROGRAMS = Path("build/host/bin")
NAME = "pagecage-workloads"


def output_of(host: VmHost, script: str) -> str:
    done = run(host.command(["sh", "-ec", script]), check=False, timeout_seconds=600)
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
        output_of(
            host,
            f"docker image rm --force {NAME} > /dev/null; systemctl stop docker.socket docker; rm"
            f" -rf {context}",
        )
