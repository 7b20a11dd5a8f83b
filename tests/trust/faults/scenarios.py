"""All scenarios by name."""

from __future__ import annotations

from collections.abc import Mapping

from tests.trust.faults.bundles import BUNDLE, RENDER
from tests.trust.faults.fleets import FLEET, PROVISION
from tests.trust.faults.images import IMAGE
from tests.trust.faults.runs import RESUME, RUN
from tests.trust.faults.scenario import Scenario
from tests.trust.faults.sites import PUBLISH
from tests.trust.faults.trials import TRIAL

SCENARIOS: Mapping[str, Scenario] = {
    one.name: one for one in (RUN, RESUME, TRIAL, FLEET, PROVISION, BUNDLE, RENDER, PUBLISH, IMAGE)
}
