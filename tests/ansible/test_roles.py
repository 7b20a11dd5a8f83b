"""Checks of the roles without a host: package names, documented variables, ways to undo."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from pagecage.model.json_codec import Json
from tests.tree import ROOT

ROLES = sorted(path for path in (ROOT / "ansible/roles").iterdir() if path.is_dir())
VARS = ROOT / "ansible/roles/base/vars"
# Package names that differ in the other family.
IN_FEDORA = {
    "default-jre-headless": "java-latest-openjdk-headless",
    "nbd-client": "nbd",
    "procps": "procps-ng",
    "python3.11": "python3",
}


def load(path: Path) -> Json:
    found: Json = yaml.safe_load(path.read_text()) or {}
    return found


def names(family: str) -> set[str]:
    listed = load(VARS / f"{family}.yml")["base_family_packages"]
    assert listed == sorted(set(listed))
    return set(listed)


def test_every_family_that_the_survey_knows_has_its_packages() -> None:
    survey = load(ROOT / "ansible/roles/survey/defaults/main.yml")
    families = survey["survey_families"]
    assert set(families) == set(survey["survey_oldest_release"] or ())
    assert all(names(family) for family in families.values())


@pytest.mark.parametrize("release", ["debian", "ubuntu-22.04"])
def test_fedora_gets_what_debian_gets(release: str) -> None:
    wanted = {IN_FEDORA.get(name, name) for name in names(release)}
    assert wanted <= names("redhat")
    assert names("redhat") - wanted == {"diffutils", "python3-libdnf5"}, (
        "what Fedora alone needs named"
    )


@pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)
def test_every_default_is_specified_and_documented(role: Path) -> None:
    defaults = set(load(role / "defaults/main.yml"))
    specified = load(role / "meta/argument_specs.yml")["argument_specs"]
    options = {name for entry in specified.values() for name in entry["options"]}
    documented = set(re.findall(rf"`({role.name}_\w+)`", (role / "README.md").read_text()))
    assert defaults <= options
    if role.name != "controller":
        assert options <= documented, "the README leaves one out"


@pytest.mark.parametrize("role", ["agent", "base", "delegation", "storage", "tuning"])
def test_every_role_that_changes_a_host_can_be_undone(role: str) -> None:
    assert (ROOT / f"ansible/roles/{role}/tasks/undo.yml").exists()
    assert "undo" in load(ROOT / f"ansible/roles/{role}/meta/argument_specs.yml")["argument_specs"]
    loop = re.search(r"loop: \[(.*)\]", (ROOT / "ansible/unprovision.yml").read_text())
    assert loop is not None
    assert role in loop[1].split(", ")
