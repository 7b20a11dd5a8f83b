"""Data of a trial that pagecage does not generate itself: made by a program, or copied to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

ON_DATASETS = ("{file}", "{files}")
ORIGINAL, DATA = "original", "data"
"""Names of the saved tree, and of the tree that programs use."""


@dataclass(frozen=True)
class TrialData:
    """A directory, {data} in a command, that is the same before each trial.

    The command `prepare` makes it once, with {data}, {programs}, {seed}, {file} and {files} in its
    words; `made_by` names further programs whose change makes it anew. If trials write to it
    (`writes`), it is restored before each. `size_bytes` is an estimate for the space on the disk;
    0 if it is unknown. Without `prepare`, the controller has copied it to `copied_to`/original.
    """

    prepare: tuple[str, ...] = ()
    made_by: tuple[str, ...] = ()
    seed: int = 1
    writes: bool = False
    timeout_seconds: float = 3600.0
    size_bytes: int = 0
    copied_to: str | None = None

    @property
    def reads_datasets(self) -> bool:
        """True if the command is given the trial's datasets."""
        return any(place in word for word in self.prepare for place in ON_DATASETS)

    @property
    def disk_bytes(self) -> int:
        """The bytes that it takes on the disk: twice its size if there is an original beside it.

        The original of copied data is counted as an upload.
        """
        return self.size_bytes * (2 if self.writes and self.copied_to is None else 1)


def trial_data_to_json(data: TrialData | None) -> dict[str, Any] | None:
    """Return the data as JSON data."""
    if data is None:
        return None
    return {**asdict(data), "prepare": list(data.prepare), "made_by": list(data.made_by)}


def trial_data_from_json(data: Mapping[str, Any] | None) -> TrialData | None:
    """Return the data of JSON data."""
    if data is None:
        return None
    lists = {key: tuple(data[key]) for key in ("prepare", "made_by")}
    return TrialData(**{**data, **lists})
