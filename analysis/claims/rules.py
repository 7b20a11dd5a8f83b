"""The rules by which a figure counts as reproduced: functions of what was published and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from analysis.stats.intervals import MedianSummary
from pagecage.errors import PagecageError
from pagecage.units import parse_size_bytes

Answer = tuple[bool, str]
"""Whether it holds, and the reason in words."""
TWO_SIDED = ("ratio", "ordering")
FOUR_SIDED = ("ordering_of_ratios",)
SIDES = ("where", "over", "than", "than_over")
"""The keys of a claim's sides, in their order."""


def judge_figure(claim: Mapping[str, Any], measured: MedianSummary) -> Answer:
    """Hold a measured figure, in the claim's unit, against the published one by the claim's rule."""
    return _RULES[claim["rule"]](claim, measured)


def _factor(claim: Mapping[str, Any], measured: MedianSummary) -> Answer:
    published, factor = float(claim["published"]), float(claim["tolerance_factor"])
    if not published:
        return measured.middle == 0, "published is nothing at all, to which no factor applies"
    off = measured.middle / published
    held = 1 / factor <= off <= factor
    word = "within" if held else "outside"
    return held, f"{off:.2f} times the published figure, {word} a factor of {factor:g}"


def _range(claim: Mapping[str, Any], measured: MedianSummary) -> Answer:
    (low, high), factor = claim["published"], float(claim["tolerance_factor"])
    held = low / factor <= measured.middle <= high * factor
    wider = f" widened by a factor of {factor:g}" if factor > 1 else ""
    return held, f"{'within' if held else 'outside'} {low:g} to {high:g}{wider}"


def _ordering(claim: Mapping[str, Any], measured: MedianSummary) -> Answer:
    factor, word = float(claim["tolerance_factor"]), claim["published"]
    held = {
        "less": measured.middle < 1,
        "greater": measured.middle > 1,
        "about_equal": 1 / factor <= measured.middle <= factor,
    }[word]
    sure = "" if measured.n < 2 or word == "about_equal" or _is_apart(measured) else "; their ranges overlap"
    what = "one ratio is" if claim["rule"] in FOUR_SIDED else "one is"
    return held, f"{what} {measured.middle:.2f} times the other{sure}"


def _is_apart(measured: MedianSummary) -> bool:
    return measured.low > 1 or measured.high < 1


def _at_most(claim: Mapping[str, Any], measured: MedianSummary) -> Answer:
    return measured.middle <= float(claim["published"]), f"{_share(claim, measured)} of the bound from above"


def _at_least(claim: Mapping[str, Any], measured: MedianSummary) -> Answer:
    return measured.middle >= float(claim["published"]), f"{_share(claim, measured)} of the bound from below"


def _share(claim: Mapping[str, Any], measured: MedianSummary) -> str:
    published = float(claim["published"])
    return f"{measured.middle / published:.2f} times" if published else "above nothing: no share"


_RULES: dict[str, Callable[[Mapping[str, Any], MedianSummary], Answer]] = {
    "absolute": _factor, "ratio": _factor, "range": _range, "ordering": _ordering,
    "ordering_of_ratios": _ordering, "at_most": _at_most,
    "at_least": _at_least,
}  # fmt: skip


def config_value(definition: Mapping[str, Any], key: str) -> Any:
    """What the definition says at a dotted key (`sizes.full.files`); None where it says nothing."""
    value: Any = definition
    for part in key.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def judge_config(claim: Mapping[str, Any], definition: Mapping[str, Any], scale: float) -> tuple[Any, bool, str]:
    """The definition's own value, whether it equals the published one, and why. `scale`: bytes of one of the unit.

    A size is compared in bytes, a list with a number by its length, with a word by what it holds.
    """
    value, published = config_value(definition, claim["key"]), claim["published"]
    why = f"{claim['key']} of the definition"
    if isinstance(value, list) and isinstance(published, int | float):
        return float(len(value)), len(value) == published, f"so many levels has {why}"
    if isinstance(value, str) and isinstance(published, int | float):
        size = _size(value)
        return (value, False, why) if size is None else (size / scale, size == published * scale, why)
    told = ", ".join(map(str, value)) if isinstance(value, list) else value
    is_same = value == published or (isinstance(value, list) and published in (told, *value))
    return told, value is not None and is_same, why


def _size(text: str) -> float | None:
    try:
        return parse_size_bytes(text)
    except PagecageError:
        return None
