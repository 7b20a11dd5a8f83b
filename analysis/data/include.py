"""Excluded trials that the user includes by the name of the trial or of a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.data.load import JudgedTrial, Run, excluded_trials, with_included
from pagecage.errors import PagecageError
from pagecage.verdicts.evaluate import incomplete_collectors
from pagecage.verdicts.repeats import output_reasons
from pagecage.verdicts.volume_account import late_volumes

VERDICTS = (
    *("limits", "cache_state_reached", "host_quiet", "collectors"),
    *("consistency", "output", "volume"),
)
"""Names of the verdicts that exclude a trial if they fail."""


def failed_verdicts(trial: JudgedTrial) -> frozenset[str]:
    """Return the names of the verdicts that exclude a trial."""
    verdicts = trial.verdicts
    failed = {
        "limits": any(limit.verdict == "leaky" for limit in verdicts.limits),
        "cache_state_reached": verdicts.cache_state_reached.verdict == "not_reached",
        "host_quiet": verdicts.host_quiet.verdict == "not_quiet",
        "collectors": bool(incomplete_collectors(trial.record)),
        "output": bool(output_reasons(trial.record, verdicts.output)),
        "consistency": verdicts.consistency.verdict == "contradictory",
        "volume": bool(late_volumes(trial.record)),
    }
    return frozenset(name for name, is_failed in failed.items() if is_failed)


def excluded_ids_named(run: Run, names: Sequence[str]) -> set[str]:
    """Return the ids of the excluded trials that `names` selects.

    A name is a trial id, or a verdict, which selects the trials that fail no other verdict.
    """
    verdicts, ids = set(names) & set(VERDICTS), set(names) - set(VERDICTS)
    return {
        trial.record.trial_id
        for trial in excluded_trials(run)
        if trial.record.trial_id in ids or _fails_only(trial, verdicts)
    }


def _fails_only(trial: JudgedTrial, verdicts: set[str]) -> bool:
    """Return whether these verdicts alone exclude a trial.

    A trial of a baseline has reasons but no verdicts, so no verdict selects it.
    """
    failed = failed_verdicts(trial)
    return bool(failed) and failed <= verdicts


def include_by_name(run: Run, names: Sequence[str]) -> Run:
    """Return the run with the named trials included.

    Raises PagecageError for a name that selects no excluded trial.
    """
    for name in names:
        verdicts = set(names) & set(VERDICTS)
        if not excluded_ids_named(run, [name, *verdicts]) - excluded_ids_named(
            run, list(verdicts - {name})
        ):
            raise PagecageError(
                f"--include: {name} names no excluded trial",
                f"excluded are {_excluded_with_verdicts(run) or 'none'}",
            )
    return with_included(run, excluded_ids_named(run, names))


def _excluded_with_verdicts(run: Run) -> str:
    """Return the excluded trials as text, each with the verdicts that it fails."""
    return ", ".join(
        f"{trial.record.trial_id} ({' and '.join(sorted(failed_verdicts(trial)))})"
        for trial in excluded_trials(run)
    )


def included_by_name(run: Run) -> list[str]:
    """Return the ids of the excluded trials that were included by name."""
    return [trial.record.trial_id for trial in run.trials if trial.is_included_by_name]


def included_by_name_sentence(run: Run) -> str:
    """Return a sentence that names the trials included by name; empty if there are none."""
    ids = included_by_name(run)
    trials = "an excluded trial is" if len(ids) == 1 else f"{len(ids)} excluded trials are"
    return f"{trials} included by name: {', '.join(ids)}" if ids else ""
