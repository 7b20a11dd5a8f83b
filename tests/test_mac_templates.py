"""The templates of Lima and Colima: their keys are known, and their packages are Ansible's."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from pagecage.process import run
from tests.tree import ROOT

BIN = Path(sys.prefix) / "bin"
LIMA, COLIMA = ROOT / "containers/lima.yaml", ROOT / "containers/colima.yaml"
FOR_PYTHON = {"ca-certificates", "git", "pipx", "python3-venv"}
"""Packages for an installation of the wheel."""


class Strict(BaseModel):
    """A table whose keys are all known."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Image(Strict):
    location: str
    arch: Literal["x86_64", "aarch64"]


class Disk(Strict):
    name: str
    format: bool
    fsType: Literal["ext4"]  # noqa: N815 - Lima's name


class Containerd(Strict):
    system: bool
    user: bool


class Provision(Strict):
    mode: Literal["system", "user", "boot", "dependency", "data", "yq"]
    script: str


class Probe(Strict):
    mode: Literal["readiness"]
    description: str
    script: str
    hint: str


class Lima(Strict):
    """The keys that are used, of `LimaYAML` in pkg/limatype/lima_yaml.go of Lima 2."""

    minimumLimaVersion: str  # noqa: N815
    images: list[Image]
    cpus: int
    memory: str
    disk: str
    additionalDisks: list[Disk]  # noqa: N815
    mounts: list[str]
    containerd: Containerd
    provision: list[Provision]
    probes: list[Probe]
    message: str


class Kubernetes(Strict):
    enabled: bool


class Colima(Strict):
    """The keys that are used, of `Config` in config/config.go of Colima."""

    cpu: int
    memory: int
    disk: int
    arch: Literal["host", "x86_64", "aarch64"]
    vmType: Literal["qemu", "vz", "krunkit"]  # noqa: N815
    runtime: Literal["docker", "containerd", "incus"]
    kubernetes: Kubernetes
    mountType: Literal["sshfs", "9p", "virtiofs"]  # noqa: N815
    provision: list[Provision]


def loaded(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def packages(path: Path) -> set[str]:
    script = loaded(path)["provision"][0]["script"].replace("\\\n", " ")
    (words,) = re.findall(r"apt-get -q install (.*)", script)
    return {word for word in words.split() if not word.startswith("-")}


@pytest.mark.parametrize(("path", "model"), [(LIMA, Lima), (COLIMA, Colima)])
def test_every_key_is_known(path: Path, model: type[Strict]) -> None:
    model.model_validate(loaded(path))
    with pytest.raises(ValidationError, match="provisions"):
        model.model_validate({**loaded(path), "provisions": []})


@pytest.mark.parametrize("path", [LIMA, COLIMA], ids=lambda path: path.stem)
def test_the_packages_are_those_of_ansible(path: Path) -> None:
    family = yaml.safe_load((ROOT / "ansible/roles/base/vars/debian.yml").read_text())
    assert packages(path) == set(family["base_family_packages"]) | FOR_PYTHON


@pytest.mark.parametrize("path", [LIMA, COLIMA], ids=lambda path: path.stem)
def test_shellcheck(path: Path, tmp_path: Path) -> None:
    for number, step in enumerate([*loaded(path)["provision"], *loaded(path).get("probes", [])]):
        script = tmp_path / f"{number}.sh"
        script.write_text(step["script"])
        done = run([BIN / "shellcheck", script], check=False)
        assert done.ok, done.stdout


def test_the_measured_disk_is_the_one_that_is_mounted() -> None:
    (disk,) = loaded(LIMA)["additionalDisks"]
    assert f"/mnt/lima-{disk['name']}" in loaded(LIMA)["message"]
    assert f"limactl disk create {disk['name']} " in LIMA.read_text()
