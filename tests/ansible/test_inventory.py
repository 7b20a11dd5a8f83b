"""The values of HOST=: the groups of ansible/inventory, as Ansible reads them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pagecage.errors import HostError, PagecageError
from pagecage.fleet.provisioning import find_group, groups
from tests.tree import ROOT

RACK = """---
all:
  children:
    rack:
      children:
        upper:
          hosts:
            b.example.org:
              ansible_host: 192.0.2.2
        lower:
          hosts:
            a.example.org:
      vars:
        pagecage_data_dir: /srv/pagecage
    spare: {}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one more inventory than the shipped ones, and without a guest."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(ROOT / "ansible", tmp_path / "ansible")
    for name in (".venv", ".venv-ansible", "pagecage"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "ansible/inventory/fleet.yml").write_text(RACK)
    return tmp_path


def test_a_group_is_its_hosts_and_those_of_its_children(project: Path) -> None:
    known = groups(project)
    shipped = {"local", "vm", "guests", "example_fleet"}
    assert set(known) == shipped | {"rack", "upper", "lower", "spare"}
    rack = {host.name: host for host in known["rack"]}
    assert list(rack) == ["b.example.org", "a.example.org"]
    assert rack["b.example.org"].address == "192.0.2.2"
    assert rack["a.example.org"].address == "a.example.org"
    assert rack["a.example.org"].variables["pagecage_data_dir"] == "/srv/pagecage"
    assert known["spare"] == known["vm"] == ()
    assert find_group("a.example.org", project) == (rack["a.example.org"],)


def test_an_unknown_group_is_told_those_that_are_known(project: Path) -> None:
    with pytest.raises(PagecageError, match="no inventory has a group 'rakc'") as caught:
        find_group("rakc", project)
    assert '"rack"' in caught.value.hint
    with pytest.raises(PagecageError) as caught:
        find_group("zzz", project)
    assert "example_fleet, guests, local, lower, rack, spare, upper, vm" in caught.value.hint


def test_an_inventory_that_cannot_be_read_is_named_in_a_sentence(project: Path) -> None:
    (project / "ansible/inventory/fleet.yml").write_text("all: [unclosed\n")
    with pytest.raises(HostError, match="the inventory inventory cannot be read: "):
        groups(project)
