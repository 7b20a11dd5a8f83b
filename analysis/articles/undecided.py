"""The machine and the command that would decide a claim which is undecided here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.articles.sides import PUBLISHED_SIZE
from analysis.data.load import describe_dataset

_BY_RESPONSE = {
    "loads_": "a machine whose processor samples loads (perf mem), without a hypervisor",
    "lower_device_": "a machine whose data lie on a stacked disk, such as LVM or LUKS",
    "pass_last_tenth_": "a machine that nothing else uses for a day",
    "pass_hike_": "a machine that nothing else uses for a day",
}
"""Machines by the beginning of a response's name."""
_REPEATS, _MANY_REPEATS = 3, 10
"""Repeats for a figure that rests on one trial, and for one whose interval is too wide."""


def what_decides(
    experiment: str,
    claim: Mapping[str, Any],
    definition: Mapping[str, Any],
    verdict: str,
    n: int,
) -> tuple[str, str]:
    """Return the machine that would decide a claim, and the command to run there.

    The claim has this verdict here, by `n` trials.
    """
    command = f"make experiment NAME={experiment} SIZE={PUBLISHED_SIZE}"
    response = str(claim.get("response") or "")
    if claim.get("over_boot"):
        return "a machine that is restarted between two parts of the run", f"{command} RESUME=1"
    for beginning, machine in _BY_RESPONSE.items():
        if response.startswith(beginning):
            return machine, command
    if claim["rule"] == "decoded":
        return "a kernel whose functions can be traced, such as the guest's", f"{command} HOST=vm"
    if verdict == "undecided":
        repeats = _REPEATS if n < 2 else _MANY_REPEATS
        return "the same machine, with more repeats", f"{command} REPEATS={repeats}"
    size = (definition.get("sizes") or {}).get(PUBLISHED_SIZE) or {}
    data = describe_dataset(definition, PUBLISHED_SIZE) if size.get("dataset") else ""
    return f"a real CPU{data and f' with memory and disk for {data}'}", command
