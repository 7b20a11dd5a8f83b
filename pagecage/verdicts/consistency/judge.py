"""The verdict on a record's consistency: counters, clocks, samples, settings and figures agree.

A record has several accounts of one trial, by the cgroup, the disk, the sampler, the workload and
the machine around a guest. Where two of them exclude each other, at least one is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pagecage.model.record import Record
from pagecage.verdicts.consistency.clocks import clock_contradictions
from pagecage.verdicts.consistency.counted import counter_contradictions
from pagecage.verdicts.consistency.figures import figure_contradictions
from pagecage.verdicts.consistency.reads import read_contradictions
from pagecage.verdicts.consistency.samples import sample_contradictions
from pagecage.verdicts.consistency.settings import setting_contradictions
from pagecage.verdicts.verdict import Verdict


def judge_consistency(
    record: Record, series: Sequence[Mapping[str, Any]], damage: Sequence[str] = ()
) -> Verdict:
    """Return `consistent`, `contradictory` or `unknown`.

    `damage` has what check_traces() of pagecage/model/traces.py found.
    """
    if not record.measured:
        return Verdict("unknown", "The measured part did not end, so there is nothing to compare.")
    found = [
        *damage,
        *counter_contradictions(record),
        *clock_contradictions(record, series),
        *sample_contradictions(record, series),
        *read_contradictions(record),
        *figure_contradictions(record),
        *setting_contradictions(record),
    ]
    if found:
        return Verdict("contradictory", "; ".join(found) + ".")
    return Verdict("consistent", "Counters, clocks, samples, settings and figures agree.")
