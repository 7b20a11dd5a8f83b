"""A fleet runs on hosts of the architecture that the workloads are built for."""

from __future__ import annotations

import platform

import pytest

from pagecage.fleet import preflight
from pagecage.hosts.agent_package import VARIABLE
from tests.builders.facts import FIT


@pytest.fixture(autouse=True)
def controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.delenv(VARIABLE, raising=False)


def obstacle(machine: str) -> tuple[str, str] | None:
    found = preflight._obstacle("a", "rack", {**FIT, "machine": machine})
    return (found.message, found.hint) if found else None


def test_hosts_of_the_controllers_architecture_serve() -> None:
    assert obstacle("x86_64") is None


def test_an_arm_host_is_refused_with_the_commands_that_serve_it() -> None:
    assert obstacle("aarch64") == (
        "a is aarch64, but the workloads are built for x86_64",
        "remove a from the group, or build for it: make build MACHINE=aarch64;"
        " export PAGECAGE_MACHINE=aarch64",
    )


def test_nothing_is_built_for_other_architectures() -> None:
    found = obstacle("riscv64")
    assert found
    assert found[1] == "remove a from the group"


def test_arm_hosts_serve_where_programs_for_them_are_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "aarch64")
    assert obstacle("aarch64") is None
    found = obstacle("x86_64")
    assert found
    assert "built for aarch64" in found[0]
