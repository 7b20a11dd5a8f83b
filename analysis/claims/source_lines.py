"""Length of a function in a source file of this checkout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from analysis.claims.rules import RuleResult, evaluate_figure
from analysis.stats.intervals import summarise
from pagecage.checkout import TOP

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
