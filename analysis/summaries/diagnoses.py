"""What held each caged treatment back and what would help: one sentence a treatment, from one of its trials."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.data.load import JudgedTrial, Run, Treatment
from analysis.summaries.cells import matching, treatments


def told_by_treatment(run: Run) -> Iterator[tuple[Treatment, str]]:
    """Treatments in order, each with the sentence of its telling trial; those without any limit are left out."""
    for treatment in treatments(run):
        trial = telling(matching(run.trials, treatment))
        if trial is not None:
            yield treatment, trial.verdicts.diagnosis.sentence


def fidelity(run: Run) -> list[str]:
    """What of the cloud's ways the trials carried and what not, each once: "io_size exact: ..."."""
    told = (one for trial in run.trials for one in trial.record.cage.fidelity or ())
    return list(dict.fromkeys(f"{one['aspect'].replace('_', ' ')} {one['state']}: {one['reason']}" for one in told))


def telling(trials: list[JudgedTrial]) -> JudgedTrial | None:
    """The trial that speaks for its treatment: of the caged ones with an answer that of median length.

    Trials that count come before those that are excluded.
    """
    caged = [t for t in trials if t.verdicts.is_data_point and _is_caged(t)]
    counted = [t for t in caged if t.is_included] or caged
    in_order = sorted(counted, key=lambda t: t.record.measured.seconds if t.record.measured else 0.0)
    return in_order[(len(in_order) - 1) // 2] if in_order else None


def _is_caged(trial: JudgedTrial) -> bool:
    """Whether it had a limit of its own; closed swap alone is none."""
    return bool(set(trial.record.cage.requested or {}) - {"MemorySwapMax"})


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
