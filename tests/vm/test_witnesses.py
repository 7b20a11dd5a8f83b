"""Five witnesses of the same trials in the guest: they agree, or differ for a named reason."""

from __future__ import annotations

from typing import Any

import pytest

from reliability.witnesses import LOADS, PLANS, measure, plan_of, unexplained

pytestmark = [pytest.mark.vm, pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("plan", PLANS)
def test_the_witnesses_agree(plan: str) -> None:
    trials: list[dict[str, Any]] = []
    measure(plan_of(plan), trials.append)
    assert len(trials) == len(LOADS) * len(PLANS[plan]), [one["load"] for one in trials]
    assert unexplained(trials) == []
    for trial in trials:
        assert False not in trial["limits_held"].values(), trial
