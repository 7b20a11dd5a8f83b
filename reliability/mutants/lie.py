"""A lie: what is planted, at which moments of a trial, and the verdict that must catch it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SURVIVED, EQUIVALENT, INVISIBLE = "survived", "equivalent", "invisible"


@dataclass(frozen=True)
class Lie:
    """One lie.

    `plant` names what is planted: a plant of the kernel, of the agent's clocks and collectors, of
    the data, or of the files of a run. `expected` begins the words of the verdict that catches it
    ("limits: leaky"), or is `equivalent` or `invisible`, and then `why` gives the reason. `conduct`
    are changes of the workload's conduct, `trial` of the trial, `environment` of the fake systemd.
    """

    group: str
    name: str
    plant: str
    moments: tuple[str, ...]
    expected: str
    why: str = ""
    conduct: Mapping[str, Any] = field(default_factory=dict)
    trial: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mutant:
    lie: Lie
    moment: str

    @property
    def title(self) -> str:
        return f"{self.lie.name} ({self.moment})" if self.moment else self.lie.name
