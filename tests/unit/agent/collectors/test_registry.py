"""Each collector that a definition may name is in the module of its name."""

from __future__ import annotations

import pytest

from pagecage.agent.collectors.collector import CollectorContext
from pagecage.agent.trial_collectors import make_collector
from pagecage.model.trial import COLLECTORS, TRACERS


@pytest.mark.parametrize("name", [name for name in COLLECTORS if name not in TRACERS])
def test_each_collector_is_found(around: CollectorContext, name: str) -> None:
    assert make_collector(name, around).name == name
