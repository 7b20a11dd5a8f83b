"""What a stopping rule came to, in words."""

from __future__ import annotations

from analysis.load import Run


def stopping(run: Run) -> str:
    """The rule, and whether it was met, was not met at the bound, or is not met yet: then where."""
    plan, asked = run.plan, f"repeat until every interval is within {100 * run.plan['until_ci']:.3g} % of its median"
    asked += f", {plan['repeats']} times at most"
    is_over = len(run.trials) == len(plan["trials"])
    if is_over and not run.too_wide:
        return f"{asked}: reached after {max(trial['block'] for trial in plan['trials'])}"
    wide = (f"{' · '.join(name)} {_share(share)}" for name, share in run.too_wide.items())
    return f"{asked}: {'not reached' if is_over else 'not yet'}{': ' if run.too_wide else ''}{', '.join(wide)}"


def _share(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.3g} %"
