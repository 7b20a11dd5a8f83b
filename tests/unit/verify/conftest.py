from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.verified import VerifiedMachine


@pytest.fixture
def machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> VerifiedMachine:
    """A machine with cgroup v2, or with the hierarchy that a test asks for (EVERY_HIERARCHY)."""
    made = VerifiedMachine(tmp_path, getattr(request, "param", "v2"))
    made.make()
    monkeypatch.setenv("PATH", made.path())
    return made
