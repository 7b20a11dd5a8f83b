from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.verified import VerifiedMachine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VerifiedMachine:
    made = VerifiedMachine(tmp_path)
    made.make()
    monkeypatch.setenv("PATH", made.path())
    return made
