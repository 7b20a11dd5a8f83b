"""Rules that decide a published figure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from analysis.data.events import UNTRACED, events_in_measured_part, traced_table
from analysis.data.load import JudgedTrial, Run
from analysis.stats import MedianSummary, summarise
from pagecage.checkout import TOP
from pagecage.errors import PagecageError
from pagecage.model.run_files import read_lines
from pagecage.units import parse_size_bytes

COLLECTOR_BY_PREFIX = {
    "loads_": "perf-mem",
    "bio_write_": "blocklat",
    "block_write_": "blocklat",
    "throttled_seconds": "blocklat",
}
"""Collectors that give responses, by the beginning of their names."""


def missing_requirement(sides: Sequence[Sequence[JudgedTrial]], response: str | None) -> str | None:
    """Return the requirement of the figure that the host lacks; None if it lacks none.

    A response of a collector needs that collector; its record states why the host has none.
    """
    trials = [trial for side in sides for trial in side]
    missed = [m.reason for trial in trials for m in trial.record.missed_requirements]
    missed += [reason for trial in trials if (reason := _missing_collector(trial, response))]
    return f"the host lacks a requirement: {missed[0]}" if missed else None


def _missing_collector(trial: JudgedTrial, response: str | None) -> str | None:
    for prefix, name in COLLECTOR_BY_PREFIX.items():
        entry = trial.record.collectors.get(name) or {}
        if not (response or "").startswith(prefix):
            continue
        if entry.get("status") == "missing":
            return str(entry.get("reason") or f"the collector {name} is missing")
        if any(table.startswith(prefix) for table in entry.get("unavailable") or ()):
            return f"{response} is {UNTRACED}"
    return None


DECODED = ("vm_flags", "fault_flags", "ra_pages", "page_cache_ra_order")
_PREFIXES = ("VM_", "FAULT_FLAG_")
_YES, _NO = ("yes", "true"), ("no", "none", "false")
_WORD = re.compile(r"^(0x)?[0-9a-fA-F]*[0-9][0-9a-fA-F]*$")
"""A number, hexadecimal by default; the names of flags contain no digits but other letters."""
_RARE = 0.01
"""Words in a smaller share of faults come from a thread's start or end, and are ignored."""
WordCounts = Counter[int]


def traced_words(
    run: Run, trials: Sequence[JudgedTrial], response: str
) -> tuple[WordCounts, dict[int, list[str]]] | str:
    """Count the traced flag words (or pages), and return the names of their flags.

    Return the reason if no trial has a trace, or if none has a trace with such words.
    """
    names: dict[int, list[str]] = {}

    def word(entry: Mapping[str, Any]) -> int | None:
        value = entry.get("pages" if response == "page_cache_ra_order" else response)
        if value is not None and response.endswith("_flags"):
            names[value] = [
                strip_flag_prefix(name) for name in entry.get(f"{response[:-1]}_names") or []
            ]
        return value

    probe = "page_cache_ra_order" if response == "page_cache_ra_order" else "filemap_fault"
    traced = [trial for trial in trials if read_lines(run.path, trial.record, "bpftrace")]
    if not traced:
        return "no trial of it has a trace"
    total, is_known = Counter[Any](), False
    for trial in traced:
        if table := traced_table(trial, probe, response):
            counts = events_in_measured_part(run, trial, table, word)
            # Without a read-ahead, another table's events do not tell the value.
            is_known = is_known or table == probe or bool(counts)
            total += counts
    total.pop(None, None)
    return (total, names) if is_known else UNTRACED


def strip_flag_prefix(name: str) -> str:
    """Return the name of a flag without its prefix: `RAND_READ` for `VM_RAND_READ`."""
    return next((name.removeprefix(p) for p in _PREFIXES if name.startswith(p)), name).upper()


def compare_traced(
    published: Any, unit: str, counts: WordCounts, names: Mapping[int, list[str]]
) -> tuple[str | float | None, bool, str]:
    """Return the traced value, whether it equals the published one, and how they differ."""
    frequent = [word for word, count in counts.most_common() if count >= _RARE * counts.total()]
    if isinstance(published, str) and published.lower() in (*_YES, *_NO):
        answer = "yes" if counts else "none"
        return (
            answer,
            (published.lower() in _YES) == bool(counts),
            f"{counts.total()} events in the measured part",
        )
    if not frequent:
        return None, False, "no such event in the measured part"
    expected = _expected(published, unit)
    if isinstance(expected, frozenset):
        kinds = [frozenset(names.get(word, [])) for word in frequent]
        return _compare_flags(expected, expected if expected in kinds else kinds[0])
    if names:
        words = ", ".join(f"{word:#x}" for word in sorted(frequent))
        return (
            words,
            set(frequent) == set(expected),
            f"published {', '.join(f'{word:#x}' for word in sorted(expected))}",
        )
    return (
        float(frequent[0]),
        frequent[0] in expected,
        f"{counts[frequent[0]] / counts.total():.0%} of {counts.total()} events have this value",
    )


def _expected(published: Any, unit: str) -> frozenset[str] | list[int]:
    """Return the published value as flag names, or as numbers.

    Text is hexadecimal unless the unit is `dec`; a number is so only if the unit is `hex`.
    """
    if isinstance(published, int | float):
        return [int(f"{published:.0f}", 16 if unit == "hex" else 10)]
    parts = (
        published
        if isinstance(published, list)
        else published.replace(",", "|").replace("+", "|").split("|")
    )
    words = [str(part).strip() for part in parts]
    if all(_WORD.match(word) for word in words):
        return [int(word, 10 if unit == "dec" else 16) for word in words]
    return frozenset(strip_flag_prefix(word) for word in words)


def _compare_flags(expected: frozenset[str], traced: frozenset[str]) -> tuple[str, bool, str]:
    parts = [("also", traced - expected), ("lacks", expected - traced)]
    reason = ", ".join(f"{word} {' '.join(sorted(names))}" for word, names in parts if names)
    return " ".join(sorted(traced)), traced == expected, reason or "the same flags"


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


_COMMENTS = ("//", "/*", "*")


def evaluate_source_lines(claim: Mapping[str, Any]) -> tuple[float | None, RuleResult]:
    """Return the number of code lines of a function, and whether it is about as published.

    `key` is the path of a file, a colon, and the beginning of the function's first line. The
    number is None if the file or the function is missing.
    """
    path, _, beginning = claim["key"].partition(":")
    file = TOP / path
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    count = sum(1 for _ in _function_lines(lines, beginning.strip()))
    if not count:
        return None, (False, f"{path} has no function {beginning.strip()!r}")
    held, reason = evaluate_figure({**claim, "rule": "absolute"}, summarise([float(count)]))
    return float(count), (held, f"lines of {claim['key']} without comments; {reason}")


def _function_lines(lines: list[str], beginning: str) -> Iterator[str]:
    """Yield the lines from the one that begins so to its closing brace, without comments."""
    depth, is_inside, has_begun = 0, False, False
    for line in map(str.strip, lines):
        is_inside = is_inside or line.startswith(beginning)
        if not is_inside:
            continue
        if line and not line.startswith(_COMMENTS):
            yield line
        depth += line.count("{") - line.count("}")
        has_begun = has_begun or "{" in line
        if has_begun and depth == 0:
            return
