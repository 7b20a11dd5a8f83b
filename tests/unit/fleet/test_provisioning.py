"""The request to provision a group, as arguments of ansible-playbook."""

from __future__ import annotations

import json

import pytest

from pagecage.errors import PagecageError
from pagecage.fleet.provisioning import ProvisionRequest, run_playbook
from pagecage.model.trial import Package
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
