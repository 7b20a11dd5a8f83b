"""Proofs that the trials of a run lack, and differences between the repeats of a treatment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from analysis.data.load import JudgedTrial, Run
from analysis.formatting import treatment_label
from pagecage.verdicts.repeats import setting_differences

MARK = "°"
"""The mark of a figure that includes trials without proof."""


def has_gap(trials: Iterable[JudgedTrial]) -> bool:
    """Return whether a figure of these trials needs the mark."""
    return any(trial.lacks_proof for trial in trials)


def gap_sentence(run: Run) -> str:
    """Return the meaning of the mark, with the numbers of trials; empty if none has a gap."""
    included = [trial for trial in run.trials if trial.is_included]
    quiet = sum(trial.verdicts.host_quiet.verdict == "unknown" for trial in included)
    limits = sum(trial.has_unproven_limit for trial in included)
    parts = [f"of {quiet} it is not known whether the host was quiet"] if quiet else []
    parts += [f"{limits} never reached one of their limits"] if limits else []
    return f"{MARK} trials without proof are averaged in: {', and '.join(parts)}" if parts else ""


def repeat_differences(run: Run) -> Iterator[str]:
    """Yield a sentence for each way in which the repeats of a treatment differ."""
    groups: dict[str, list[JudgedTrial]] = {}
    for trial in run.trials:
        if trial.verdicts.is_data_point:
            groups.setdefault(treatment_label(trial.record.treatment), []).append(trial)
    for label, trials in groups.items():
        differing = [t for t in trials if t.verdicts.output.verdict == "differs"]
        if differing:
            yield (
                f"{label}: the standard output of {len(differing)} of {len(trials)} repeats"
                " differs; --same-output excludes such trials"
            )
        for sentence in setting_differences([trial.record for trial in trials]):
            yield f"{label}: {sentence}"


def cache_state_tally(trials: Iterable[JudgedTrial]) -> str:
    """Return the verdicts on the cache state, each with the caches that may still be warm."""
    words = Counter(map(_cache_state, trials))
    return ", ".join(f"{count} {word}" for word, count in words.most_common())


def _cache_state(trial: JudgedTrial) -> str:
    word, record = trial.verdicts.cache_state_reached.verdict.replace("_", " "), trial.record
    if record.cache.requested != "cold":
        return word
    layers = [str(layer["kind"]) for layer in record.device.caches_below or ()]
    notes = [f"metadata {record.cache.metadata}"] if record.cache.metadata else []
    notes += [f"above {kind}" for kind in dict.fromkeys(layers)]
    return f"{word} ({', '.join(notes)})" if notes else word
