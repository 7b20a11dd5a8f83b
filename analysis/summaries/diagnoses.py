"""Diagnoses by treatment, fidelity to the provider's limits, and the state of a stopping rule."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.data.load import JudgedTrial, Run, Treatment
from analysis.summaries.cells import treatments, trials_of
from pagecage.model.record_sections import CageEvidence


def diagnosis_by_treatment(run: Run) -> Iterator[tuple[Treatment, str]]:
    """Yield each treatment with the diagnosis of its representative trial.

    Treatments without limits are left out.
    """
    for treatment in treatments(run):
        trial = representative_trial(trials_of(run.trials, treatment))
        if trial is not None:
            yield treatment, trial.verdicts.diagnosis.sentence


def fidelity_lines(run: Run) -> list[str]:
    """Return how closely the trials followed the provider's behaviour, one line per aspect.

    An example is "io size exact: requests are split at 256 KiB".
    """
    entries = (
        (where, one)
        for trial in run.trials
        for where, cage in _cages(trial)
        for one in cage.fidelity or ()
    )
    return list(
        dict.fromkeys(
            f"{where}{one['aspect'].replace('_', ' ')} {one['state']}: {one['reason']}"
            for where, one in entries
        )
    )


def _cages(trial: JudgedTrial) -> Iterator[tuple[str, CageEvidence]]:
    """Yield the limits of each disk, after a phrase that names a disk beside the data's."""
    yield "", trial.record.cage
    for name, disk in trial.record.disks.items():
        yield f"disk {name}, ", disk.cage


def representative_trial(trials: list[JudgedTrial]) -> JudgedTrial | None:
    """Return the caged trial with an answer whose measured time is the median.

    Included trials take precedence over excluded ones. None if there is no such trial.
    """
    caged = [t for t in trials if t.verdicts.is_data_point and _is_caged(t)]
    counted = [t for t in caged if t.is_included] or caged
    in_order = sorted(
        counted, key=lambda t: t.record.measured.seconds if t.record.measured else 0.0
    )
    return in_order[(len(in_order) - 1) // 2] if in_order else None


def _is_caged(trial: JudgedTrial) -> bool:
    """Return whether a trial has a limit of its own; disabled swap alone does not count."""
    own = set(trial.record.cage.requested or {}) - {"MemorySwapMax"}
    return bool(own or trial.record.disks)


def stopping_rule_status(run: Run) -> str:
    """Describe the stopping rule: reached, not reached at its bound, or not yet reached."""
    plan, rule = (
        run.plan,
        f"repeat until every interval is within {100 * run.plan['until_ci']:.3g} % of its median",
    )
    rule += f", {plan['repeats']} times at most"
    is_over = len(run.trials) == len(plan["trials"])
    if is_over and not run.too_wide:
        return f"{rule}: reached after {max(trial['block'] for trial in plan['trials'])}"
    wide = (f"{' · '.join(name)} {_share(share)}" for name, share in run.too_wide.items())
    return (
        f"{rule}:"
        f" {'not reached' if is_over else 'not yet'}{': ' if run.too_wide else ''}{', '.join(wide)}"
    )


def _share(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.3g} %"
