"""What held each caged treatment back and what would help: one sentence a treatment, from one of its trials."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.cells import Treatment, matching, treatments
from analysis.load import Judged, Run


def told_by_treatment(run: Run) -> Iterator[tuple[Treatment, str]]:
    """Treatments in order, each with the sentence of its telling trial; those without any limit are left out."""
    for treatment in treatments(run):
        trial = telling(matching(run.trials, treatment))
        if trial is not None:
            yield treatment, trial.verdicts.diagnosis.sentence


def carried(run: Run) -> list[str]:
    """What of the cloud's ways the trials carried and what not, each once: "io_size exact: ..."."""
    told = (one for trial in run.trials for one in trial.record.cage.get("carried") or ())
    return list(dict.fromkeys(f"{one['what'].replace('_', ' ')} {one['state']}: {one['because']}" for one in told))


def telling(trials: list[Judged]) -> Judged | None:
    """The trial that speaks for its treatment: of the caged ones with an answer that of median length.

    Trials that count come before those that are excluded.
    """
    caged = [t for t in trials if t.verdicts.is_data_point and _is_caged(t)]
    counted = [t for t in caged if t.is_included] or caged
    in_order = sorted(counted, key=lambda t: (t.record.measured or {}).get("seconds", 0.0))
    return in_order[(len(in_order) - 1) // 2] if in_order else None


def _is_caged(trial: Judged) -> bool:
    """Whether it had a limit of its own; closed swap alone is none."""
    return bool(set(trial.record.cage.get("requested") or {}) - {"MemorySwapMax"})
