"""The trials of a search for memory: those of the plan, and the rounds that its records ask for.

The plan holds the rule (`memory_search`) and the trials of the reference. Every later trial follows
from the records, so that a run can be resumed, and a reader of its records gets the same trials.
Nothing of it is stored. See docs/decisions/.
"""

from __future__ import annotations

import copy
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from pagecage.memory_search import need
from pagecage.memory_search.need import LevelRequest, MeasuredLevels, MemoryTrial, SearchRule
from pagecage.model.json_codec import Json
from pagecage.model.record import Record
from pagecage.model.run_files import Document
from pagecage.units import exact_size
from pagecage.verdicts.counters import difference, final_counter, io_at
from pagecage.verdicts.evaluate import Judge, Verdicts

KEY = "memory_search"
FACTOR = "cage"
SECOND_OPINION = "damon"
"""The trial that DAMON watches."""
GIVE_UP = 5
"""A level is given up as too small after this multiple of the reference's time."""
LEAST_GIVE_UP_SECONDS = 5.0
_REFAULTS = ("workingset_refault_file", "workingset_refault_anon")


def rule_of(document: Document) -> SearchRule | None:
    found = document.get(KEY)
    return SearchRule(**found["rule"]) if found else None


def with_rounds(document: Document, last: Mapping[str, Record], judge: Judge) -> Document:
    """Return plan.json with the trials and the levels of all rounds that the records ask for.

    `last` is the last record of each trial by id. A round is added when all earlier trials have a
    result. Other plans are returned as they are.
    """
    rule = rule_of(document)
    if rule is None:
        return document
    trials: list[Json] = list(document["trials"])
    response, number = document["definition"]["response"], 0
    while measured := _measured(trials, last, response, judge):
        if not (requests := need.next_round(rule, measured)):
            trials += _second_opinion(document, trials, measured)
            break
        number += 1
        trials += _round(document, trials, requests, measured, number)
    definition = document["definition"]
    first = trials[0]["treatment"][FACTOR]
    limits = {t["treatment"][FACTOR]: t["cage"]["properties"].get("MemoryMax") for t in trials}
    below = sorted((name for name in limits if name != first), key=lambda n: -(limits[n] or 0))
    return {
        **document,
        "trials": trials,
        "definition": {**definition, "factors": {FACTOR: [first, *below]}},
    }


def answer_of_run(
    document: Document, last: Mapping[str, Record], judge: Judge
) -> need.MemoryAnswer | None:
    """Return the answer of a search, from plan.json with its rounds; None without one yet."""
    rule = rule_of(document)
    measured = measured_levels(document, last, judge)
    return need.answer_of(rule, measured) if rule and measured else None


def measured_levels(
    document: Document, last: Mapping[str, Record], judge: Judge
) -> MeasuredLevels | None:
    final = {trial_id for trial_id, record in last.items() if record.is_final}
    trials = [trial for trial in document["trials"] if trial["trial_id"] in final]
    return _measured(trials, last, document["definition"]["response"], judge)


def _measured(
    trials: Sequence[Document], last: Mapping[str, Record], response: str, judge: Judge
) -> MeasuredLevels | None:
    final = {trial_id for trial_id, record in last.items() if record.is_final}
    if not trials or not final.issuperset(trial["trial_id"] for trial in trials):
        return None
    groups: dict[str, list[Document]] = defaultdict(list)
    for trial in trials:
        if trial["trial_id"] != SECOND_OPINION:
            groups[trial["treatment"][FACTOR]].append(trial)
    levels = []
    for group in groups.values():
        records = [last[trial["trial_id"]] for trial in group]
        figures = tuple(figures_of(record, response, judge(record)) for record in records)
        levels.append(need.MemoryLevel(group[0]["cage"]["properties"].get("MemoryMax"), figures))
    return MeasuredLevels(levels[0], tuple(levels[1:]))


def figures_of(record: Record, response: str, verdicts: Verdicts) -> MemoryTrial:
    is_proven = all(reason.startswith("host not quiet") for reason in verdicts.reasons)
    is_killed = bool(final_counter(record, "memory.events", "oom_kill"))
    is_cut = record.outcome == "timed_out" and verdicts.excluded
    is_short = is_killed or (record.outcome != "ok" and not is_cut)
    is_timed = record.outcome == "ok" and not verdicts.excluded
    return MemoryTrial(
        seconds=record.response.get(response) if is_timed and not is_killed else None,
        refaults=refaults_of(record) if is_proven and not is_short else None,
        is_short=is_short,
        is_killed=is_killed,
        is_cut=is_cut,
        read_pages=(io_at(record, "totals", "rbytes") or 0.0) / record.page_bytes,
        page_bytes=record.page_bytes,
        peak_bytes=final_counter(record, "memory.peak"),
    )


def refaults_of(record: Record) -> float | None:
    counts = [difference(record, "cgroup", "memory.stat", key) for key in _REFAULTS]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _round(
    document: Document,
    trials: Sequence[Json],
    requests: Sequence[LevelRequest],
    measured: MeasuredLevels,
    number: int,
) -> Iterator[Json]:
    counts = Counter(trial["treatment"][FACTOR] for trial in trials)
    made = []
    for request in requests:
        name = _level_name(document, request.limit_bytes)
        numbers = range(counts[name] + 1, counts[name] + request.trials + 1)
        made += [_trial(document, request.limit_bytes, name, n, measured) for n in numbers]
    random.Random(f"{document['seed']} {number}").shuffle(made)
    block = max(trial["block"] for trial in trials) + 1
    for position, trial in enumerate(made, start=len(trials)):
        yield {**trial, "block": block, "position": position}


def _second_opinion(
    document: Document, trials: Sequence[Json], measured: MeasuredLevels
) -> Iterator[Json]:
    is_there = any(trial["trial_id"] == SECOND_OPINION for trial in trials)
    if is_there or not document[KEY].get("has_second_opinion") or not measured.is_usable:
        return
    trial: Json = copy.deepcopy(document["trials"][0])
    trial |= {
        "trial_id": SECOND_OPINION,
        "treatment": {FACTOR: f"{_level_name(document, None)}, watched by DAMON"},
        "collectors": [*dict.fromkeys((*trial["collectors"], "damon"))],
        "block": max(trial["block"] for trial in trials) + 1,
        "position": len(trials),
    }
    yield trial


def _level_name(document: Document, limit_bytes: int | None) -> str:
    reference: str = document["trials"][0]["treatment"][FACTOR]
    return reference if limit_bytes is None else f"{reference}, MemoryMax {exact_size(limit_bytes)}"


def _trial(
    document: Document, limit_bytes: int | None, name: str, repeat: int, measured: MeasuredLevels
) -> Json:
    """Return the reference's trial with another MemoryMax, and less time before it is given up."""
    trial: Json = copy.deepcopy(document["trials"][0])
    id_ = "reference" if limit_bytes is None else f"{limit_bytes // 1024}k"
    trial |= {"trial_id": f"r{repeat}_{id_}", "repeat": repeat, "treatment": {FACTOR: name}}
    if limit_bytes is None:
        return trial
    trial["cage"]["name"] = name
    trial["cage"]["properties"] |= {"MemoryMax": limit_bytes}
    longest = max(LEAST_GIVE_UP_SECONDS, GIVE_UP * (measured.reference.seconds or 0.0))
    timeout = min(trial["timeout_seconds"], longest)
    trial["timeout_seconds"] = timeout
    if command := trial["workload"].get("command"):
        command["timeout_seconds"] = timeout
    return trial
