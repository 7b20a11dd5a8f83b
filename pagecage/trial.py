"""One treatment, to be run once on a freshly prepared host: what goes to the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pagecage.cage import Cage, cage_from_json, cage_to_json

CACHE_STATES = ("cold", "resident", "any")
COLLECTORS = ("iostat", "sar", "vmtouch", "bpftrace")


@dataclass(frozen=True)
class Dataset:
    """A file of known content: `size_bytes` of `fill` made from `seed` by pcgen; its name says all three."""

    size_bytes: int
    seed: int = 1
    fill: str = "random"

    @property
    def file_name(self) -> str:
        """The file's name in the data directory; equal names mean equal bytes."""
        return f"{self.fill}-{self.size_bytes}-{self.seed}.bin"


@dataclass(frozen=True)
class Workload:
    """The program to run. `handshake` programs speak the contract in workloads/README.md; a `command` is timed whole.

    `arguments` may hold {file}, {sidecar}, {data_dir} and {max_seconds}; `min_memory_bytes` is the smallest MemoryMax
    in which it is known to work.
    """

    program: str
    arguments: tuple[str, ...]
    kind: str = "handshake"
    min_memory_bytes: int = 0


@dataclass(frozen=True)
class Trial:
    """One row of a plan. `max_seconds` bounds the measured part, `timeout_seconds` the workload's whole life."""

    trial_id: str
    experiment: str
    treatment: Mapping[str, str]
    repeat: int
    block: int
    position: int
    workload: Workload
    cage: Cage
    cache: str = "any"
    dataset: Dataset | None = None
    read_ahead_kb: int | None = None
    collectors: tuple[str, ...] = ()
    max_seconds: float | None = None
    timeout_seconds: float = 600.0


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """The trial as it stands in plan.json and travels to the agent."""
    return {
        **asdict(trial),
        "treatment": dict(trial.treatment),
        "cage": cage_to_json(trial.cage),
        "collectors": list(trial.collectors),
        "workload": {**asdict(trial.workload), "arguments": list(trial.workload.arguments)},
    }


def trial_from_json(data: Mapping[str, Any]) -> Trial:
    """The inverse of `trial_to_json`."""
    workload = {**data["workload"], "arguments": tuple(data["workload"]["arguments"])}
    return Trial(
        **{
            **data,
            "workload": Workload(**workload),
            "cage": cage_from_json(data["cage"]),
            "dataset": Dataset(**data["dataset"]) if data["dataset"] else None,
            "collectors": tuple(data["collectors"]),
        }
    )
