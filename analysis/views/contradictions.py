"""Notice at the top of a report that a run contradicts its article."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from analysis.claims.contradictions import contradiction_sentences
from analysis.claims.evaluate import ClaimResult, evaluate_claims
from analysis.data.load import Run

_CLAIM_CELL = re.compile(r"<td>(\d{3}-\d+)</td>")


def contradiction_sentence(results: Sequence[ClaimResult]) -> str:
    """Return how many published figures a run contradicts, and their ids; empty if none."""
    found = _not_held(results)
    if not found:
        return ""
    ids = f"{_count(results, found)}: {', '.join(claim.id for claim in found)}."
    return " ".join([ids, *contradiction_sentences(found)])


def contradiction_html(run: Run) -> str:
    """Return the notice as a box whose ids link to the rows of the claims; empty if none."""
    results = evaluate_claims(run)
    found = _not_held(results)
    if not found:
        return ""
    links = ", ".join(f'<a href="#claim-{escape(one.id)}">{escape(one.id)}</a>' for one in found)
    conclusions = "".join(f"<br>{escape(one)}" for one in contradiction_sentences(found))
    head = f"<strong>{_count(results, found)}</strong>: {links}."
    return f'<div class="notice warn">{head}{conclusions}</div>'


def _not_held(results: Sequence[ClaimResult]) -> list[ClaimResult]:
    return [claim for claim in results if claim.verdict == "not_held"]


def _count(results: Sequence[ClaimResult], found: list[ClaimResult]) -> str:
    compared = sum(claim.verdict in ("held", "not_held") for claim in results)
    noun = "figure" if compared == 1 else "figures"
    return f"This run contradicts its article in {len(found)} of {compared} {noun} compared"


def with_anchors(table: str) -> str:
    """Return the HTML of a table of claims with an anchor at each id."""
    return _CLAIM_CELL.sub(r'<td id="claim-\1">\1</td>', table)
