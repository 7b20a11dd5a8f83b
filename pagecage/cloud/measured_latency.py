"""Latencies of a type of volume that users measured, beside its provider's statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import model_validator

from pagecage.cloud.sources import SourceTable
from pagecage.definitions.fields import SizeBytes, StrictTable
from pagecage.definitions.simulation_tables import Percentiles, quantiles_of
from pagecage.model.simulation import LatencyQuantiles

Use = Literal["distribution", "at_cap", "context"]


class MeasuredLatencyTable(StrictTable):
    """Percentiles of one direction, and the load under which they were measured.

    A `distribution` was measured below all limits, and a simulated volume draws from it. `at_cap`
    includes the wait at a limit, which a simulation produces by itself. `context` includes other
    waits, or has too few percentiles.
    """

    direction: Literal["read", "write"]
    use: Use = "distribution"
    size: SizeBytes | None = None
    percentiles_us: Percentiles
    load: str
    by: str
    remark: str = ""

    @model_validator(mode="after")
    def _check(self) -> MeasuredLatencyTable:
        quantiles_of(self.percentiles_us)
        if self.use == "distribution" and self.size is None:
            raise ValueError("a distribution needs size, the size of the requests")
        return self

    def with_source(self, known: Mapping[str, SourceTable]) -> MeasuredLatency:
        """Return the latencies with their source. Raises ValueError if it is missing."""
        if self.by not in known:
            raise ValueError(f"sources.{self.by} is missing")
        quantiles = quantiles_of(self.percentiles_us)
        return MeasuredLatency(
            self.direction, self.use, self.size, quantiles, self.load, known[self.by], self.remark
        )


@dataclass(frozen=True)
class MeasuredLatency:
    """Quantiles of one direction and their source; `size_bytes` is None if it is unknown."""

    direction: str
    use: str
    size_bytes: int | None
    quantiles: tuple[tuple[float, float], ...]
    load: str
    source: SourceTable
    remark: str


def distributions(
    measured: tuple[MeasuredLatency, ...], direction: str
) -> tuple[LatencyQuantiles, ...]:
    """Return the distributions of one direction from which a simulated volume draws."""
    return tuple(
        LatencyQuantiles(one.size_bytes, one.quantiles)
        for one in measured
        if (one.use, one.direction) == ("distribution", direction) and one.size_bytes is not None
    )
