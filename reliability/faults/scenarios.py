"""All scenarios by name."""

from __future__ import annotations

from collections.abc import Mapping

from reliability.faults.bundles import BUNDLE, RENDER
from reliability.faults.fleets import FLEET, PROVISION
from reliability.faults.images import IMAGE
from reliability.faults.runs import RESUME, RUN
from reliability.faults.scenario import Scenario
from reliability.faults.sites import PUBLISH
from reliability.faults.trials import TRIAL

SCENARIOS: Mapping[str, Scenario] = {
    one.name: one for one in (RUN, RESUME, TRIAL, FLEET, PROVISION, BUNDLE, RENDER, PUBLISH, IMAGE)
}
