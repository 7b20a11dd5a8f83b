"""Provisioning of a group, and the archive that Ansible unpacks on each host of a fleet."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from pagecage.agent.volume_server import PLUGIN
from pagecage.checkout import TOP
from pagecage.errors import PagecageError
from pagecage.fleet.provisioning import (
    FleetPlaybook,
    ProvisionRequest,
    make_fleet_playbook,
    run_playbook,
)
from pagecage.hosts.agent_package import AgentPackage
from pagecage.model.trial import Package
from pagecage.process import run
from tests.tree import ROOT

POSTGRESQL = Package("postgresql", "postgresql-server")


def variables(request: ProvisionRequest) -> dict[str, object]:
    words = request.words()
    found: dict[str, object] = json.loads(words[words.index("--extra-vars") + 1])
    return found


def test_packages_of_an_experiment_are_a_variable_of_the_role() -> None:
    request = ProvisionRequest("rack", "site.yml", "none", packages=(POSTGRESQL,))
    assert variables(request) == {
        "pagecage_data_device": "none",
        "base_experiment_packages": [{"debian": "postgresql", "redhat": "postgresql-server"}],
    }
    assert "--extra-vars" not in ProvisionRequest("rack", "site.yml").words()


def test_packages_for_the_guest_are_refused_because_it_has_no_network() -> None:
    with pytest.raises(PagecageError, match="part of the guest's image"):
        run_playbook(ProvisionRequest("vm", "site.yml", packages=(POSTGRESQL,)), ROOT, print, print)


def playbook_of(top: Path, plugin: bytes | None) -> FleetPlaybook:
    """Return the playbook with an agent, one workload and, unless it is None, the plugin."""
    files = {"agent.pyz": b"agent", "pcread": b"workload", PLUGIN: plugin}
    for name, content in files.items():
        if content is not None:
            (top / name).write_bytes(content)
    package = AgentPackage(
        top / "agent.pyz", (top / "pcread",), "0" * 64, top / PLUGIN if plugin else None
    )
    return make_fleet_playbook(TOP, package, top / "scratch", top / "inventory.json")


def test_the_plugin_lies_beside_the_workloads(tmp_path: Path) -> None:
    with tarfile.open(playbook_of(tmp_path, b"plugin").archive) as archive:
        modes = {member.name: member.mode for member in archive}
    assert list(modes) == ["agent.pyz", "bin/pcread", f"bin/{PLUGIN}"]
    assert set(modes.values()) == {0o755}


def test_a_host_gets_a_new_plugin(tmp_path: Path) -> None:
    """A host unpacks an archive unless its files have these hashes."""
    plugins = (None, b"plugin", b"plugin changed")
    books = [playbook_of(tmp_path, plugin) for plugin in plugins]
    assert len({book.sums for book in books}) == len({book.archive for book in books}) == 3


def test_hashes_are_those_of_the_files(tmp_path: Path) -> None:
    book = playbook_of(tmp_path, b"plugin")
    with tarfile.open(book.archive) as archive:
        archive.extractall(tmp_path / "spool", filter="data")
    lines = "".join(f"{line}\n" for line in book.sums)
    run(["sha256sum", "--check", "--strict"], cwd=tmp_path / "spool", input_text=lines)
