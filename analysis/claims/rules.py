"""Rules that compare a measured figure with the published one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from analysis.stats.intervals import MedianSummary
from pagecage.errors import PagecageError
from pagecage.units import parse_size_bytes

RuleResult = tuple[bool | None, str]
"""True if the claim holds, None if the figures cannot decide it, and the reason."""
RATIO_RULES = ("ratio", "ordering")
"""Rules whose figure is always a ratio; bounds may be one as well."""
RATIO_OF_RATIOS_RULES = ("ordering_of_ratios",)
ORDERINGS_NEED = 2
"""Trials on each side without which an ordering is undecided, because their spread is unknown."""


def evaluate_figure(claim: Mapping[str, Any], measured: MedianSummary) -> RuleResult:
    """Evaluate a measured figure, in the claim's unit, by the claim's rule."""
    return _RULES[claim["rule"]](claim, measured)


def is_within_factor(measured: float, published: float, factor: float) -> bool:
    """Return whether a figure is the published one within a factor."""
    return published / factor <= measured <= published * factor


def _factor(claim: Mapping[str, Any], measured: MedianSummary) -> RuleResult:
    published, factor = float(claim["published"]), float(claim["tolerance_factor"])
    if not published:
        return measured.middle == 0, "the published figure is zero, so that no factor applies"
    off = measured.middle / published
    held = 1 / factor <= off <= factor
    word = "within" if held else "outside"
    return held, f"{off:.2f} times the published figure, {word} a factor of {factor:g}"


def _range(claim: Mapping[str, Any], measured: MedianSummary) -> RuleResult:
    (low, high), factor = claim["published"], float(claim["tolerance_factor"])
    held = low / factor <= measured.middle <= high * factor
    wider = f" widened by a factor of {factor:g}" if factor > 1 else ""
    return held, f"{'within' if held else 'outside'} {low:g} to {high:g}{wider}"


def _ordering(claim: Mapping[str, Any], measured: MedianSummary) -> RuleResult:
    """Compare two sides; undecided unless their ranges are apart, or are within the factor."""
    what = "one ratio is" if claim["rule"] in RATIO_OF_RATIOS_RULES else "one is"
    reason = f"{what} {measured.middle:.2f} times the other"
    if measured.n < ORDERINGS_NEED:
        return None, f"{reason}; a side has a single trial, so that its spread is unknown"
    held = _is_ordered(claim, measured)
    if held is None and claim["published"] == "about_equal":
        return None, f"{reason}; the interval reaches beyond a factor of {_tolerance(claim):g}"
    return held, f"{reason}; their ranges overlap" if held is None else reason


def _is_ordered(claim: Mapping[str, Any], measured: MedianSummary) -> bool | None:
    """Return whether the whole interval confirms the order; None if it confirms neither."""
    factor, word = _tolerance(claim), claim["published"]
    if word == "about_equal":
        is_within = 1 / factor <= measured.low and measured.high <= factor
        is_apart = measured.high < 1 / factor or measured.low > factor
        return True if is_within else False if is_apart else None
    if measured.low == measured.high == 1:
        return False
    is_less = True if measured.high < 1 else False if measured.low > 1 else None
    return is_less if word == "less" or is_less is None else not is_less


def _tolerance(claim: Mapping[str, Any]) -> float:
    return float(claim["tolerance_factor"])


def _at_most(claim: Mapping[str, Any], measured: MedianSummary) -> RuleResult:
    return measured.middle <= float(claim["published"]), _relative_to_bound(
        claim, measured, "upper"
    )


def _at_least(claim: Mapping[str, Any], measured: MedianSummary) -> RuleResult:
    return measured.middle >= float(claim["published"]), _relative_to_bound(
        claim, measured, "lower"
    )


def _relative_to_bound(claim: Mapping[str, Any], measured: MedianSummary, bound: str) -> str:
    published = float(claim["published"])
    return (
        f"{measured.middle / published:.2f} times the {bound} bound"
        if published
        else f"the {bound} bound is zero"
    )


_RULES: dict[str, Callable[[Mapping[str, Any], MedianSummary], RuleResult]] = {
    "absolute": _factor,
    "ratio": _factor,
    "range": _range,
    "difference": _range,
    "ordering": _ordering,
    "ordering_of_ratios": _ordering,
    "at_most": _at_most,
    "at_least": _at_least,
}


def config_value(definition: Mapping[str, Any], key: str) -> Any:
    """Return the definition's value at a dotted key (`sizes.full.files`); None if it is absent."""
    value: Any = definition
    for part in key.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def evaluate_config(
    claim: Mapping[str, Any], definition: Mapping[str, Any], scale: float
) -> tuple[Any, bool, str]:
    """Return the definition's own value, whether it equals the published one, and the reason.

    `scale` is the number of bytes in the claim's unit. Sizes are compared in bytes. A list is
    compared with a number by its length, and with a word by its elements.
    """
    value, published = config_value(definition, claim["key"]), claim["published"]
    reason = f"{claim['key']} of the definition"
    if isinstance(value, list) and isinstance(published, int | float):
        return float(len(value)), len(value) == published, f"the number of levels in {reason}"
    if isinstance(value, str) and isinstance(published, int | float):
        size = _size(value)
        return (
            (value, False, reason)
            if size is None
            else (size / scale, size == published * scale, reason)
        )
    text = ", ".join(map(str, value)) if isinstance(value, list) else value
    is_same = value == published or (isinstance(value, list) and published in (text, *value))
    return text, value is not None and is_same, reason


def _size(text: str) -> float | None:
    try:
        return parse_size_bytes(text)
    except PagecageError:
        return None
