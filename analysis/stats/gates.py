"""`--fail-if 'read_seconds > +10%'`: a change that must not be, and whether the figures can tell."""

from __future__ import annotations

import re
from dataclasses import dataclass

from analysis.stats.intervals import MedianSummary
from pagecage.errors import PagecageError

FEWEST_A_SIDE = 3
"""Of three and three trials all of one side lie above all of the other by chance once in twenty times."""
_GATE = re.compile(r"\s*(?P<name>[a-z][a-z0-9_]*)\s*(?P<sign>[<>]=?)\s*(?P<percent>[+-][0-9]+(?:\.[0-9]+)?)\s*%\s*")


@dataclass(frozen=True)
class Gate:
    """Fails where the change of `response` compares so (`> >= < <=`) with `percent`; `text` is what was typed."""

    text: str
    response: str
    sign: str
    percent: float

    @property
    def threshold(self) -> float:
        """The ratio at which it begins to fail."""
        return 1 + self.percent / 100


def parse_gate(text: str) -> Gate:
    """A gate from `name op +N%`. Raises PagecageError for anything else."""
    match = _GATE.fullmatch(text)
    if not match:
        raise PagecageError(f"--fail-if {text!r} is no gate", "write it as 'read_seconds > +10%', the sign included")
    gate = Gate(text.strip(), match["name"], match["sign"], float(match["percent"]))
    if gate.threshold <= 0:
        raise PagecageError(f"--fail-if {text!r}: nothing becomes less than nothing", "name a change above -100%")
    return gate


def judge_gate(gate: Gate, ratio: MedianSummary | None) -> tuple[str, str]:
    """`failed`, `passed` or `undecided`, and why. It is decided where the whole interval lies on one side."""
    if ratio is None:
        return "undecided", "there is no ratio"
    if ratio.n < FEWEST_A_SIDE:
        return "undecided", f"fewer than {FEWEST_A_SIDE} trials a side tell nothing about their spread"
    ends = [_is_met(gate, end) for end in (ratio.low, ratio.high)]
    if all(ends):
        return "failed", "the whole interval lies beyond"
    return (
        ("undecided", "the interval lies on both sides") if any(ends) else ("passed", "the whole interval lies within")
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
