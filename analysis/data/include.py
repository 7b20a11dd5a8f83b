"""Excluded trials that are counted after all, because somebody named them or what excludes them."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.data.load import JudgedTrial, Run, with_let_in
from pagecage.errors import PagecageError

VERDICTS = ("limits", "cache_state_reached", "host_quiet")
"""Verdicts that exclude a trial where they fail."""


def failed_verdicts(trial: JudgedTrial) -> frozenset[str]:
    """The verdicts that exclude a trial."""
    verdicts = trial.verdicts
    failed = {
        "limits": any(limit.verdict == "leaky" for limit in verdicts.limits),
        "cache_state_reached": verdicts.cache_state_reached.verdict == "not_reached",
        "host_quiet": verdicts.host_quiet.verdict == "not_quiet",
    }
    return frozenset(name for name, is_failed in failed.items() if is_failed)


def named(run: Run, names: Sequence[str]) -> set[str]:
    """The excluded trials of a run that names mean: of trials, or of verdicts, which mean trials that fail no other."""
    classes, ids = set(names) & set(VERDICTS), set(names) - set(VERDICTS)
    excluded = [trial for trial in run.trials if trial.verdicts.is_data_point and not trial.is_included]
    return {t.record.trial_id for t in excluded if t.record.trial_id in ids or failed_verdicts(t) <= classes}


def let_in(run: Run, names: Sequence[str]) -> Run:
    """The run with the named trials counted. Raises PagecageError for a name that lets nothing in."""
    for name in names:
        others = set(names) & set(VERDICTS)
        if not named(run, [name, *others]) - named(run, list(others - {name})):
            raise PagecageError(f"--include: {name} lets no excluded trial in", f"excluded are {_known(run) or 'none'}")
    return with_let_in(run, named(run, names))


def _known(run: Run) -> str:
    """The excluded trials with the verdicts that they fail."""
    told = [
        f"{trial.record.trial_id} ({' and '.join(sorted(failed_verdicts(trial)))})"
        for trial in run.trials if trial.verdicts.is_data_point and not trial.is_included
    ]  # fmt: skip
    return ", ".join(told)


def told(run: Run) -> str:
    """A sentence that names those who were let in; empty where nobody was."""
    ids = [trial.record.trial_id for trial in run.trials if trial.is_let_in]
    some = "an excluded trial was" if len(ids) == 1 else f"{len(ids)} excluded trials were"
    return f"{some} let in by name and averaged in: {', '.join(ids)}" if ids else ""
