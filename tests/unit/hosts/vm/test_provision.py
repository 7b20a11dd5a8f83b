import shutil
from pathlib import Path

import pytest

from pagecage.hosts.vm.image_build import provisioning_key


@pytest.fixture
def copy(checkout: Path, tmp_path: Path) -> Path:
    for name in ("ansible", "cgroups"):
        shutil.copytree(checkout / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "matters"),
    [
        ("ansible/site.yml", True),
        ("ansible/roles/base/defaults/main.yml", True),
        ("ansible/roles/delegation/handlers/main.yml", True),
        ("cgroups/50-pagecage-delegation.conf", True),
        ("ansible/roles/base/README.md", False),
        ("ansible/roles/controller/defaults/main.yml", False),
        ("cgroups/smoke.toml", False),
    ],
)
def test_the_guest_is_fitted_again_when_what_fits_it_changes(
    checkout: Path, copy: Path, name: str, matters: bool
) -> None:
    assert provisioning_key(copy) == provisioning_key(checkout)
    with (copy / name).open("a") as file:
        file.write("\n# changed\n")
    assert (provisioning_key(copy) != provisioning_key(checkout)) is matters
