"""Claims of articles, decided by a run."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from typing import Any

from analysis.articles.sides import (
    PUBLISHED_SIZE,
    SIDES,
    RuleResult,
    Sides,
    arms_of,
    evaluate_knee,
    number_of_sides,
    sides_of,
    summarise_sides,
)
from analysis.cells import claim_trials, is_extrapolated, wrong_answer_reason
from analysis.data.events import UNTRACED, events_in_measured_part, traced_table
from analysis.data.load import Claim, JudgedTrial, Run, describe_dataset
from analysis.formatting import depends_on_cpu_speed, unit_scale
from analysis.stats import MedianSummary
from pagecage.checkout import TOP
from pagecage.errors import PagecageError
from pagecage.model.run_files import read_lines
from pagecage.units import parse_size_bytes
from pagecage.verdicts.counters import cpu_seconds, measured_seconds

COLLECTOR_BY_PREFIX = {
    "loads_": "perf-mem",
    "bio_write_": "blocklat",
    "block_write_": "blocklat",
    "throttled_seconds": "blocklat",
}
"""Collectors that give responses, by the beginning of their names."""


def missing_requirement(sides: Sides, response: str | None) -> str | None:
    """Return what the figure needs and the host lacks; None if it lacks nothing."""
    trials = [trial for side in sides for trial in side]
    missed = [m.reason for trial in trials for m in trial.record.missed_requirements]
    for trial in trials:
        for prefix, name in COLLECTOR_BY_PREFIX.items():
            entry = trial.record.collectors.get(name) or {}
            if not (response or "").startswith(prefix):
                continue
            if entry.get("status") == "missing":
                missed.append(str(entry.get("reason") or f"the collector {name} is missing"))
            elif any(table.startswith(prefix) for table in entry.get("unavailable") or ()):
                missed.append(f"{response} is {UNTRACED}")
    return f"the host lacks a requirement: {missed[0]}" if missed else None


_TRACED = {
    **dict.fromkeys(("vm_flags", "fault_flags", "ra_pages"), "filemap_fault"),
    "returned": "filemap_fault_return",
    **dict.fromkeys(("page_cache_ra_order", "ra_order"), "page_cache_ra_order"),
}
"""Probes by response of the rule `decoded`."""
DECODED = tuple(_TRACED)
_KEYS = {"page_cache_ra_order": "pages", "ra_order": "order"}
"""Keys of a traced event whose response has another name."""
_PREFIXES = ("VM_", "FAULT_FLAG_")
_YES, _NO = ("yes", "true"), ("no", "none", "false")
_WORD = re.compile(r"^(0x)?[0-9a-fA-F]*[0-9][0-9a-fA-F]*$")
"""A number, hexadecimal by default; the names of flags contain no digits but other letters."""
_RARE = 0.01
"""Words in a smaller share of faults come from a thread's start or end, and are ignored."""


def traced_words(
    run: Run, trials: Sequence[JudgedTrial], response: str
) -> tuple[Counter[int], dict[int, list[str]]] | str:
    """Count the traced flag words (or pages), and name their flags; else return the reason."""
    names: dict[int, list[str]] = {}
    key, probe = _KEYS.get(response, response), _TRACED[response]

    def word(entry: Mapping[str, Any]) -> int | None:
        value = entry.get(key)
        if value is not None and response.endswith("_flags"):
            listed = entry.get(f"{response[:-1]}_names") or []
            names[value] = [_strip_flag_prefix(name) for name in listed]
        return value

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


def _strip_flag_prefix(name: str) -> str:
    """Return the name of a flag without its prefix: `RAND_READ` for `VM_RAND_READ`."""
    return next((name.removeprefix(p) for p in _PREFIXES if name.startswith(p)), name).upper()


def compare_traced(
    published: Any, unit: str, counts: Counter[int], names: Mapping[int, list[str]]
) -> tuple[str | float | None, bool, str]:
    """Return the traced value, whether it equals the published one, and how they differ."""
    all_events = counts.total()
    frequent = [word for word, count in counts.most_common() if count >= _RARE * all_events]
    if isinstance(published, str) and published.lower() in (*_YES, *_NO):
        held = (published.lower() in _YES) == bool(counts)
        return "yes" if counts else "none", held, f"{all_events} events in the measured part"
    if not frequent:
        return None, False, "no such event in the measured part"
    expected = _expected(published, unit)
    if isinstance(expected, frozenset):
        kinds = [frozenset(names.get(word, [])) for word in frequent]
        traced = expected if expected in kinds else kinds[0]
        parts = [("also", traced - expected), ("lacks", expected - traced)]
        reason = ", ".join(f"{word} {' '.join(sorted(names))}" for word, names in parts if names)
        return " ".join(sorted(traced)), traced == expected, reason or "the same flags"
    if names:
        known = {*frequent, *(word for word in expected if counts[word])}
        form = "d" if unit == "dec" else "#x"
        found, wanted = (", ".join(f"{x:{form}}" for x in sorted(one)) for one in (known, expected))
        return found, known == set(expected), f"published {wanted}"
    share = f"{counts[frequent[0]] / all_events:.0%} of {all_events} events"
    return float(frequent[0]), frequent[0] in expected, f"{share} have this value"


def _expected(published: Any, unit: str) -> frozenset[str] | list[int]:
    """Return the published value as flag names, or as numbers.

    Text is hexadecimal unless the unit is `dec`; a number is so only if the unit is `hex`.
    """
    if isinstance(published, int | float):
        return [int(f"{published:.0f}", 16 if unit == "hex" else 10)]
    parts = published if isinstance(published, list) else re.split(r"[,+|]", published)
    words = [str(part).strip() for part in parts]
    if all(_WORD.match(word) for word in words):
        return [int(word, 10 if unit == "dec" else 16) for word in words]
    return frozenset(map(_strip_flag_prefix, words))


RATIO_RULES = ("ratio", "ordering")
"""Rules whose figure is always a ratio; bounds may be one as well."""


def evaluate_figure(claim: Claim, measured: MedianSummary) -> RuleResult:
    """Evaluate a figure in the claim's unit; it is decided if its interval crosses no bound."""
    if claim["rule"] in ("ordering", "ordering_of_ratios"):
        return _ordering(claim, measured)
    low, high, reason = _bounds(claim, measured.middle)
    if measured.n < 2:
        return None, f"{reason}; {_SINGLE}"
    if low <= measured.low and measured.high <= high:
        return True, reason
    if measured.high < low or measured.low > high:
        return False, reason
    return None, f"{reason}; the interval reaches across the bound"


_SINGLE = "a single trial does not show its spread"


def _bounds(claim: Claim, middle: float) -> tuple[float, float, str]:
    """Return the least and the largest figure that hold, and where the measured one lies."""
    published, factor = claim["published"], float(claim["tolerance_factor"])
    match claim["rule"]:
        case "absolute" | "ratio":
            if not published:
                return 0.0, 0.0, "the published figure is zero, so that no factor applies"
            low, high = published / factor, published * factor
            word = "within" if low <= middle <= high else "outside"
            times = f"{middle / published:.2f} times the published figure"
            return low, high, f"{times}, {word} a factor of {factor:g}"
        case "range" | "difference":
            low, high = published[0] / factor, published[1] * factor
            wider = f" widened by a factor of {factor:g}" if factor > 1 else ""
            word = "within" if low <= middle <= high else "outside"
            return low, high, f"{word} {published[0]:g} to {published[1]:g}{wider}"
    bound, other = ("upper", -inf) if claim["rule"] == "at_most" else ("lower", inf)
    times = f"{middle / published:.2f} times the {bound} bound" if published else ""
    low, high = sorted((float(published), other))
    return low, high, times or f"the {bound} bound is zero"


def _ordering(claim: Claim, measured: MedianSummary) -> RuleResult:
    """Compare two sides; undecided unless their ranges are apart, or are within the factor."""
    what = "one ratio is" if claim["rule"] == "ordering_of_ratios" else "one is"
    reason, low, high = f"{what} {measured.middle:.2f} times the other", measured.low, measured.high
    if measured.n < 2:
        return None, f"{reason}; {_SINGLE}"
    if claim["published"] == "about_equal":
        factor = float(claim["tolerance_factor"])
        if 1 / factor <= low and high <= factor:
            return True, reason
        if high < 1 / factor or low > factor:
            return False, reason
        return None, f"{reason}; the interval reaches beyond a factor of {factor:g}"
    if low == high == 1:
        return False, reason
    if low <= 1 <= high:
        return None, f"{reason}; their ranges overlap"
    return (high < 1) == (claim["published"] == "less"), reason


def evaluate_config(
    claim: Claim, definition: Mapping[str, Any], scale: float
) -> tuple[Any, bool, str]:
    """Return the definition's own value, whether it equals the published one, and the reason.

    `key` is dotted, such as `sizes.full.files`. `scale` is the number of bytes in the claim's unit.
    A list is compared with a number by its length, and with a word by its elements.
    """
    value: Any = definition
    for part in claim["key"].split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    published, reason = claim["published"], f"{claim['key']} of the definition"
    is_number = isinstance(published, int | float)
    if isinstance(value, list) and is_number:
        return float(len(value)), len(value) == published, f"the number of levels in {reason}"
    if isinstance(value, str) and is_number:
        try:
            size = parse_size_bytes(value)
        except PagecageError:
            return value, False, reason
        return size / scale, size == published * scale, reason
    text = ", ".join(map(str, value)) if isinstance(value, list) else value
    is_same = value == published or (isinstance(value, list) and published in (text, *value))
    return text, value is not None and is_same, reason


_COMMENTS = ("//", "/*", "*")


def evaluate_source_lines(claim: Claim) -> tuple[float | None, RuleResult]:
    """Return the number of a function's code lines, and whether it is about as published.

    `key` is a path, a colon, and the beginning of the function's first line. The number is None if
    the file or the function is missing.
    """
    path, _, beginning = claim["key"].partition(":")
    file, beginning = TOP / path, beginning.strip()
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    count, depth, has_begun = 0, 0, False
    for line in itertools.dropwhile(
        lambda one: not one.startswith(beginning), map(str.strip, lines)
    ):
        count += bool(line) and not line.startswith(_COMMENTS)
        depth += line.count("{") - line.count("}")
        has_begun = has_begun or "{" in line
        if has_begun and depth == 0:
            break
    if not count:
        return None, (False, f"{path} has no function {beginning!r}")
    low, high, reason = _bounds({**claim, "rule": "absolute"}, count)
    reason = f"lines of {claim['key']} without comments; {reason}"
    return float(count), (low <= count <= high, reason)


MOSTLY = 0.5
"""CPUs in use above which an emulated time measures the emulator rather than the disk."""


def incomparable_reason(run: Run, claim: Claim, sides: Sides) -> str | None:
    """Return why a figure cannot be compared with the published one; None if it can."""
    if several := different_hosts(sides):
        return several
    is_full = run.size == PUBLISHED_SIZE
    emulated = any(trial.record.emulated for side in sides for trial in side)
    if claim["needs"] == "published_size" and not (is_full and not emulated):
        given = run.definition
        measured, published = (describe_dataset(given, s) for s in (run.size, PUBLISHED_SIZE))
        size = "" if is_full else f"published at {published}, measured at {measured}"
        where = "measured on emulated hardware" if emulated else ""
        return " and ".join(filter(None, (size, where)))
    if emulated and depends_on_cpu_speed(claim["response"]):
        names = ("numerator", "denominator", "other numerator", "other denominator")[: len(sides)]
        slow = [
            name
            for name, side in zip(names, sides, strict=True)
            if any(_waits_for_cpu(trial) for trial in side)
        ]
        whose = f"the time of its {' and '.join(slow)}" if len(sides) > 1 else "its time"
        return f"under emulation {whose} is mostly that of the emulated CPU" if slow else None
    return None


def different_hosts(sides: Sides) -> str | None:
    hosts = sorted({trial.record.host for side in sides for trial in side})
    return f"its trials ran on different hosts: {', '.join(hosts)}" if len(hosts) > 1 else None


def _waits_for_cpu(trial: JudgedTrial) -> bool:
    seconds, used = measured_seconds(trial.record), cpu_seconds(trial.record)
    busy = used / seconds if used is not None and seconds else 0.0
    return trial.verdicts.binding_limit.verdict == "cpu" or busy > MOSTLY


DEFINITION_RULES = ("config", "source_lines")
"""Rules that need no run."""
MECHANISM, ABSOLUTE, CONSTRUCTION = KINDS = ("mechanism", "absolute", "construction")
"""Kinds of figures: ratios, counts, orders and outcomes, which carry over to another machine; times
and rates of a machine; and what the definition or the set-up fixes.
"""
_OF_ONE_FIGURE = ("absolute", "range", "at_most", "at_least")


def kind_of(claim: Claim) -> str:
    if claim.get("counts_as"):
        return str(claim["counts_as"])
    if claim["rule"] in DEFINITION_RULES:
        return CONSTRUCTION
    if claim["rule"] not in _OF_ONE_FIGURE or number_of_sides(claim) > 1 or claim.get("per"):
        return MECHANISM
    is_timed = depends_on_cpu_speed(claim["response"])
    return ABSOLUTE if is_timed or claim.get("needs") == "published_size" else MECHANISM


EXTRAPOLATED = "rests on a pass that was cut short and extrapolated"
_OUTCOMES = {
    "oom_killed": "killed",
    "ok": "ran",
    "timed_out": "timed out",
    "wrong_answer": "wrong answer",
}


@dataclass(frozen=True)
class ClaimResult:
    """One row of the claims table.

    `verdict` is `held`, `not_held`, `by_construction`, `undecided`, `not_comparable`,
    `requirement_missed` or `no_data`. `measured` is a figure in the claim's unit, an outcome, or
    None. `low` and `high` span its interval, which `kind` names. `origin` is `article` for a figure
    of its tables or text, `conclusion` for an added row that is derived from its conclusions, and
    empty in older runs. `counts_as` is one of `KINDS`.
    """

    id: str
    says: str
    published: Any
    unit: str
    measured: float | str | None
    low: float | None
    high: float | None
    kind: str
    n: int
    verdict: str
    reason: str
    origin: str = ""
    counts_as: str = ""

    @property
    def is_silent(self) -> bool:
        return self.verdict in ("no_data", "requirement_missed") and self.measured is None


def evaluate_claims(run: Run) -> list[ClaimResult]:
    return [evaluate_claim(run, claim) for claim in run.definition.get("claims", [])]


_WORST_FIRST = (
    *("not_held", "no_data", "requirement_missed", "not_comparable", "undecided"),
    *("held", "by_construction"),
)


def evaluate_claim(run: Run, claim: Claim) -> ClaimResult:
    """Evaluate a claim, which is completed from its row.

    With `also`, it holds if it does for all these levels; the result is that of the first levels
    for which it does not.
    """
    if claim["rule"] in DEFINITION_RULES:
        return definition_result(claim, run.definition)
    arms = arms_of(claim)
    results = [(_evaluate(run, arm), arm.get("where") or {}) for arm in arms]
    worst, where = min(results, key=lambda found: _WORST_FIRST.index(found[0].verdict))
    if len(arms) == 1:
        return worst
    levels = ", ".join(f"{name}={level}" for name, level in where.items())
    return replace(worst, reason=f"{worst.reason}; one of {len(arms)} comparisons: {levels}")


def _evaluate(run: Run, claim: Claim) -> ClaimResult:
    """Evaluate one arm of a claim; a reason against it ends with where it was tested."""
    sides = sides_of(run, claim)
    eligible = [claim_trials(side, claim) for side in sides]
    if claim["rule"] == "outcome":
        result = _outcome(run, claim, sides[0])
    elif claim["rule"] == "decoded":
        result = _decoded(run, claim, sides, eligible)
    else:
        claim = {"needs": "any_size", "tolerance_factor": 2.0, **claim}
        result = _figure(run, claim, sides, eligible)
    if result.verdict != "not_held":
        return result
    kernel = next((str(facts["kernel"]) for facts in run.facts if facts.get("kernel")), None)
    where = [f"kernel {kernel}"] if kernel else []
    used = sides if claim["rule"] == "decoded" else eligible
    trials = [trial for side in used for trial in side]
    names = dict.fromkeys(str(t.record.device.name) for t in trials if t.record.device.name)
    sizes = (run.size, PUBLISHED_SIZE)
    own, published = (describe_dataset(run.definition, size) for size in sizes)
    where += [f"disk {name}" for name in names]
    where += [f"{own} instead of {published}"] if own != published else []
    where += ["emulated"] if any(trial.record.emulated for trial in trials) else []
    return replace(result, reason=f"{result.reason} ({', '.join(where)})") if where else result


def _figure(run: Run, claim: Claim, sides: Sides, eligible: Sides) -> ClaimResult:
    summary = summarise_sides(run, claim, eligible, claim["unit"])
    if summary is None:
        measured = summarise_sides(run, claim, sides, claim["unit"])
        if missing := missing_requirement(sides, claim["response"]):
            return _result(claim, measured, "requirement_missed", missing)
        reason = reason_without_figure(run, claim, sides, eligible)
        return _result(claim, measured, "no_data", reason)
    incomparable = incomparable_reason(run, claim, eligible)
    if claim["rule"] == "knee":
        summary, (held, reason) = evaluate_knee(run, claim, eligible[0])
    elif kind_of(claim) == CONSTRUCTION:
        low, high, reason = _bounds(claim, summary.middle)
        held = low <= summary.middle <= high
    else:
        held, reason = evaluate_figure(claim, summary)
    verdict = "undecided" if held is None else "held" if held else "not_held"
    trials = [trial for side in eligible for trial in side]
    reasons = [incomparable or reason]
    if any(is_extrapolated(trial, claim["response"]) for trial in trials):
        reasons.append(EXTRAPOLATED)
    if wrong := wrong_answer_reason(trials):
        reasons.append(f"the figure of {wrong}")
    verdict = "not_comparable" if incomparable else verdict
    return _result(claim, summary, verdict, "; ".join(filter(None, reasons)))


def reason_without_figure(run: Run, claim: Claim, sides: Sides, eligible: Sides) -> str:
    """Return why there is no figure; `claim` may also be a finding."""
    missing = missing_requirement(sides, claim["response"])
    if missing:
        return missing
    if claim.get("over_boot") and not all(sides):
        return "its trials ran in one boot of the host; restart it and resume the run"
    if not all(sides):
        planned = [dict(trial["treatment"]).items() for trial in run.plan["trials"]]
        levels = [(claim.get(key) or {}).items() for key in SIDES]
        if all(any(side <= trial for trial in planned) for side in levels):
            return "its trials have not been run"
        return f"size {run.size} leaves its treatment out"
    outcomes = [{trial.record.outcome for trial in side} for side in sides]
    for side, of_side in zip(sides, outcomes, strict=True):
        if of_side == {"wrong_answer"} and not claim.get("with_wrong_answers"):
            return wrong_answer_reason(side)
    for side, left in zip(sides, eligible, strict=True):
        if not left and any(
            t.verdicts.is_data_point or t.record.outcome == "wrong_answer" for t in side
        ):
            return "every trial of it is excluded or has no answer"
    return "no trial of it has a figure"


def _outcome(run: Run, claim: Claim, side: Sequence[JudgedTrial]) -> ClaimResult:
    eligible = [trial for trial in side if trial.is_ended_apart_from_noise]
    n = len(eligible)
    if not eligible:
        reason = reason_without_figure(run, claim, [side], [eligible])
        return _result(claim, None, "no_data", reason)
    words = sorted({_OUTCOMES[trial.record.outcome] for trial in eligible})
    reason = f"{sum(trial.is_killed for trial in eligible)} of {n} were killed for memory"
    if wrong := sum(trial.record.outcome == "wrong_answer" for trial in eligible):
        reason = f"{wrong} of {n} gave {wrong_answer_reason(eligible)}"
    held = words == [str(claim["published"]).replace("_", " ")]
    return _result(claim, " or ".join(words), "held" if held else "not_held", reason, n=n)


def _decoded(run: Run, claim: Claim, sides: Sides, eligible: Sides) -> ClaimResult:
    whole = [trial for trial in sides[0] if trial.is_valid_apart_from_noise]
    responses, published = claim["response"].split("+"), [claim["published"]]
    if len(responses) > 1:
        published = [part.strip() for part in claim["published"].split("/")]
    found = []
    for response, part in zip(responses, published, strict=True):
        result = traced_words(run, whole, response)
        if isinstance(result, str):
            reason = result if whole else reason_without_figure(run, claim, sides, eligible)
            return _result(claim, None, "no_data", reason)
        found.append(compare_traced(part, claim["unit"], *result))
    words, holds, reasons = zip(*found, strict=True)
    verdict = "no_data" if None in words else "held" if all(holds) else "not_held"
    measured = words[0]
    if len(words) > 1:
        measured = " / ".join(f"{w:g}" if isinstance(w, float) else str(w) for w in words)
    return _result(claim, measured, verdict, "; ".join(reasons), n=len(whole))


def definition_result(claim: Claim, definition: Mapping[str, Any]) -> ClaimResult:
    measured: Any
    if claim["rule"] == "source_lines":
        measured, (held, reason) = evaluate_source_lines({"tolerance_factor": 2.0, **claim})
    else:
        measured, held, reason = evaluate_config(claim, definition, unit_scale(claim["unit"]))
    return _result(claim, measured, "held" if held else "not_held", reason)


def _result(
    claim: Claim,
    measured: MedianSummary | str | float | None,
    verdict: str,
    reason: str,
    n: int = 0,
) -> ClaimResult:
    summary = measured if isinstance(measured, MedianSummary) else None
    has_interval = summary is not None and summary.kind != "knee"
    kind = kind_of(claim)
    is_ratio = number_of_sides(claim) > 1 and claim["rule"] != "difference"
    # JSON cannot represent infinity, the ratio to zero.
    middle, low, high = (
        one if isfinite(one) else None
        for one in ((summary.middle, summary.low, summary.high) if summary else (nan, nan, nan))
    )
    return ClaimResult(
        id=claim["id"],
        says=claim["says"],
        published=claim["published"],
        unit="x" if is_ratio else claim["unit"],
        measured=middle if isinstance(measured, MedianSummary) else measured,
        low=low if has_interval else None,
        high=high if has_interval else None,
        kind=summary.kind if summary else "",
        n=summary.n if summary else n,
        verdict="by_construction" if (kind, verdict) == (CONSTRUCTION, "held") else verdict,
        reason=reason,
        origin=claim.get("origin", ""),
        counts_as=kind,
    )
