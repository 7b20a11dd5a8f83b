"""Gates of `--fail-if 'read_seconds > +10%'`: parsing and evaluation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from analysis.stats.intervals import MedianSummary
from pagecage.errors import PagecageError

MIN_TRIALS_PER_RUN = 3
"""Minimum trials per run for a decision.

With three trials in each of two runs, all trials of one exceed all of the other by chance once in
twenty times.
"""
_GATE = re.compile(
    r"\s*(?P<name>[a-z][a-z0-9_]*)\s*(?P<sign>[<>]=?)\s*(?P<percent>[+-][0-9]+(?:\.[0-9]+)?)\s*%\s*"
)


@dataclass(frozen=True)
class Gate:
    """A condition on the change of a response.

    The gate fails if the change compares to `percent` by `sign` (`> >= < <=`). `text` is the
    condition as typed.
    """

    text: str
    response: str
    sign: str
    percent: float

    @property
    def threshold(self) -> float:
        """The ratio at which the gate begins to fail."""
        return 1 + self.percent / 100


def parse_gate(text: str) -> Gate:
    """Parse a gate `name op +N%`. Raises PagecageError for any other text."""
    match = _GATE.fullmatch(text)
    if not match:
        raise PagecageError(
            f"--fail-if {text!r} is not a gate",
            "write it as 'read_seconds > +10%', including the sign",
        )
    gate = Gate(text.strip(), match["name"], match["sign"], float(match["percent"]))
    if gate.threshold <= 0:
        raise PagecageError(
            f"--fail-if {text!r}: no figure falls below zero", "name a change above -100%"
        )
    return gate


def evaluate_gate(
    gate: Gate, ratio: MedianSummary | None, noise_share: float = 0.0
) -> tuple[str, str]:
    """Return `failed`, `passed` or `undecided`, and the reason.

    A gate is decided if the whole interval lies on one side of its threshold. It does not fail for
    a change within `noise_share`, by which identical trials differ.
    """
    if ratio is None:
        return "undecided", "there is no ratio"
    if ratio.n < MIN_TRIALS_PER_RUN:
        return (
            "undecided",
            f"fewer than {MIN_TRIALS_PER_RUN} trials per run do not show their spread",
        )
    ends = [_is_met(gate, end) for end in (ratio.low, ratio.high)]
    if all(ends) and max(ratio.middle, 1 / ratio.middle) <= 1 + noise_share:
        return "undecided", f"identical trials differ by up to {noise_share:.1%}"
    if all(ends):
        return "failed", "the whole interval is beyond the threshold"
    return (
        ("undecided", "the interval includes the threshold")
        if any(ends)
        else ("passed", "the whole interval is within the threshold")
    )


def _is_met(gate: Gate, value: float) -> bool:
    match gate.sign:
        case ">":
            return value > gate.threshold
        case ">=":
            return value >= gate.threshold
        case "<":
            return value < gate.threshold
    return value <= gate.threshold
