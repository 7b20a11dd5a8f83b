"""Runs and bundles, loaded and judged, with the layout of their treatments."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analysis.formatting import unit_scale
from pagecage.bundle.pack import SUFFIX
from pagecage.bundle.unpack import unpacked
from pagecage.errors import PagecageError, why_unreadable
from pagecage.memory_search.rounds import with_rounds
from pagecage.model.record import Record, read_records
from pagecage.model.run_files import check_records, check_traces, read_facts, read_lines, read_plan
from pagecage.units import LEAST_PAGE_BYTES
from pagecage.verdicts.evaluate import Judge, Verdicts, evaluate, incomplete_collectors, judge_of
from pagecage.verdicts.repeats import others_by_trial, output_reasons
from pagecage.verdicts.stopping import needed, too_wide
from pagecage.verdicts.volume_account import late_volumes

_NUMBER = re.compile(r"^(?P<before>[^0-9]*?)(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[A-Za-z%]*)$")
_UNITS = ("B", "kB", "MB", "GB", "KiB", "MiB", "GiB", "us", "ms", "s")
_ABBREVIATED = {"": "B", "K": "KiB", "k": "KiB", "M": "MiB"}
_SCALE = {name: unit_scale(_ABBREVIATED.get(name, name)) for name in (*_UNITS, *_ABBREVIATED)}
"""Units of levels, in bytes or seconds."""
_WORDS = ("none", "off")
_MANY_ACROSS = 5
"""More columns than this do not fit a page next to their published figures."""
_MANY_FACTORS = 4
_FULL = 0.75
"""If a smaller share of a table's cells is filled, one row per treatment is easier to read."""


def numeric_levels(levels: Sequence[str]) -> dict[str, float] | None:
    """Return the levels as numbers ("4KiB", "ra128", "none" as 0), if all are different ones."""
    found, before = {}, set()
    for level in levels:
        match = _NUMBER.match(level)
        if match and match["unit"] in _SCALE:
            found[level] = float(match["number"]) * _SCALE[match["unit"]]
            before.add(match["before"])
        elif level not in _WORDS:
            return None
    found |= {level: 0.0 for level in levels if level in _WORDS}
    is_distinct = len(before) == 1 and len(set(found.values())) == len(levels) > 1
    return found if is_distinct else None


def sort_levels(levels: Sequence[str]) -> list[str]:
    known = numeric_levels(levels)
    return sorted(levels, key=lambda level: known[level]) if known else list(levels)


@dataclass(frozen=True)
class TableLayout:
    """The factors of a table's rows and columns, and those with a single level.

    Without a factor `across`, each treatment is a row.
    """

    down: tuple[str, ...]
    across: str | None
    constant: Mapping[str, str]


def table_layout(
    factors: Mapping[str, Sequence[str]], planned: Iterable[Mapping[str, str]]
) -> TableLayout:
    """Return the table layout: the last factor goes across if it fits and few cells stay empty."""
    treatments = list(planned)
    used = {
        name: [level for level in factors[name] if any(t[name] == level for t in treatments)]
        for name in factors
    }
    varying = [name for name in factors if len(used[name]) > 1] or list(factors)[-1:]
    constant = {name: used[name][0] for name in factors if name not in varying and used[name]}
    *down, across = varying
    rows = {tuple(t[name] for name in down) for t in treatments}
    filled = len(treatments) / max(1, len(rows) * len(used[across]))
    is_narrow = len(used[across]) <= _MANY_ACROSS and len(varying) < _MANY_FACTORS
    if down and is_narrow and filled >= _FULL:
        return TableLayout(tuple(down), across, constant)
    return TableLayout(tuple(varying), None, constant)


IO_KEYS = ("rbytes", "rios", "wbytes", "wios")
STALLS = ("io", "memory")


@dataclass(frozen=True)
class Series:
    """Columns of equal length; a value that a row lacks is NaN.

    `io` holds the slice's totals by key. `stalled_us` holds how long at least one task had waited
    for `io` and for `memory`. `refaults` counts file pages that were read again
    (`workingset_refault_file`).
    """

    t: array[float]
    io: Mapping[str, array[float]]
    resident_pages: array[float]
    memory_current: array[float]
    refaults: array[float]
    stalled_us: Mapping[str, array[float]]


def series_of(rows: Iterable[Mapping[str, Any]]) -> Series:
    """Return the columns of `sampler.jsonl`; an unused disk has an empty `io`, counted as 0."""
    samples = list(rows)

    def column(*keys: str) -> array[float]:
        found = array("d")
        for row in samples:
            value: Any = row
            for key in keys:
                value = (value or {}).get(key)
            found.append(float("nan") if value is None else value)
        return found

    return Series(
        t=array("d", [row["t"] for row in samples]),
        io={key: array("d", [row["io"].get(key, 0) for row in samples]) for key in IO_KEYS},
        resident_pages=column("resident_pages"),
        memory_current=column("memory_current"),
        refaults=column("memory_stat", "workingset_refault_file"),
        stalled_us={kind: column("pressure", kind, "some") for kind in STALLS},
    )


Treatment = Mapping[str, str]
Claim = Mapping[str, Any]
"""A claim, a finding or another table of a definition, with its keys."""

_MALFORMED_RECORD_ERRORS = (AttributeError, LookupError, ArithmeticError, TypeError, ValueError)
"""Exceptions raised for a record whose outline is valid but whose contents are not."""


@dataclass(frozen=True)
class JudgedTrial:
    """The last attempt of a trial, with its verdicts and its sampler's series."""

    record: Record
    verdicts: Verdicts
    series: Series
    is_included_by_name: bool = False

    @property
    def is_excluded(self) -> bool:
        """True if its verdicts exclude it and it is not included by name."""
        return self.verdicts.excluded and not self.is_included_by_name

    @property
    def is_included(self) -> bool:
        """True if its figures are averaged: it is a data point and not excluded."""
        return self.verdicts.is_data_point and not self.is_excluded

    @property
    def has_unproven_limit(self) -> bool:
        """True if nothing reached one of its limits, so that it may not have been in force."""
        return any(limit.verdict == "never_reached" for limit in self.verdicts.limits)

    @property
    def lacks_proof(self) -> bool:
        """True if its figure counts although a limit or the quiet of its host is not proven."""
        is_unknown = self.verdicts.host_quiet.verdict == "unknown"
        return self.is_included and (is_unknown or self.has_unproven_limit)

    @property
    def is_valid_apart_from_noise(self) -> bool:
        """True if no reason other than host noise excludes it."""
        return self.verdicts.is_data_point and self._is_only_noise

    @property
    def is_ended_apart_from_noise(self) -> bool:
        """True if it ended with or without a right answer, and noise alone excludes it."""
        has_ended = self.verdicts.is_data_point or self.record.outcome == "wrong_answer"
        return has_ended and self._is_only_noise

    @property
    def _is_only_noise(self) -> bool:
        return all(reason.startswith("host not quiet") for reason in self.verdicts.reasons)

    @property
    def is_wrong(self) -> bool:
        """True if it gave a wrong answer and is not excluded; the record's error describes it."""
        return self.record.outcome == "wrong_answer" and not self.verdicts.excluded

    @property
    def is_killed(self) -> bool:
        return self.record.outcome == "oom_killed"


@dataclass(frozen=True)
class Run:
    """A run folder: its plan, the facts of its hosts, and the recorded trials in plan order.

    `plan["trials"]` holds the trials that the run needs, and `plan["planned"]` the number planned;
    a stopping rule may have ended the run earlier. `too_wide` holds the treatments whose interval
    is wider than that rule allows.
    """

    path: Path
    plan: Mapping[str, Any]
    facts: tuple[Mapping[str, Any], ...]
    trials: tuple[JudgedTrial, ...]
    attempts: int
    too_wide: Mapping[tuple[str, ...], float | None] = field(default_factory=dict)

    @property
    def is_baseline(self) -> bool:
        """True if it was read from a baseline's file, which keeps only some of the facts."""
        return self.path.is_file()

    @property
    def run_id(self) -> str:
        return str(self.plan["run_id"])

    @property
    def experiment(self) -> str:
        return str(self.plan["experiment"])

    @property
    def size(self) -> str:
        return str(self.plan["size"])

    @property
    def definition(self) -> Mapping[str, Any]:
        """The experiment's definition, as it was when the run was planned."""
        definition: Mapping[str, Any] = self.plan["definition"]
        return definition

    @property
    def factors(self) -> Mapping[str, list[str]]:
        """Levels by factor, in the definition's order; numeric levels are sorted."""
        return {name: sort_levels(levels) for name, levels in self.definition["factors"].items()}

    @property
    def layout(self) -> TableLayout:
        return table_layout(self.factors, (trial["treatment"] for trial in self.plan["trials"]))

    @property
    def response(self) -> str:
        return str(self.definition.get("response", "read_seconds"))

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The patterns of a service's metrics by name; empty for other workloads."""
        metrics: Mapping[str, Any] = (self.definition.get("workload") or {}).get("metrics") or {}
        return metrics

    def fill_places(self, text: str) -> str:
        """Return a text of the definition with the {places} of the run's size filled in."""
        size = (self.definition.get("sizes") or {}).get(self.size) or {}
        for name, value in (size.get("places") or {}).items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    @property
    def is_emulated(self) -> bool:
        return any(trial.record.emulated for trial in self.trials)

    @property
    def page_bytes(self) -> int:
        """The size of the hosts' pages; the largest, if the hosts differ."""
        return max((trial.record.page_bytes for trial in self.trials), default=LEAST_PAGE_BYTES)


def load_run(path: Path) -> Run:
    """Load a run folder.

    Raises PagecageError for any other folder, and for a run without a record or with an invalid
    one.
    """
    known = _JudgedRecords(path)
    plan, records = planned_and_recorded(path, known.judge_of)
    last = {}
    for record in records:
        given, factors = record.treatment, plan["definition"]["factors"]
        levels = {name: given[name] for name in factors if name in given}
        last[record.trial_id] = replace(record, treatment=levels)
    trials = needed(plan, last, known.verdicts)
    recorded = [last[t["trial_id"]] for t in trials if t["trial_id"] in last]
    judged = tuple(JudgedTrial(record, *known.judged(record)) for record in recorded)
    narrowed = {**plan, "trials": trials, "planned": len(plan["trials"])}
    wide = too_wide(plan, last, known.verdicts)
    return Run(path, narrowed, read_facts(path), judged, len(records), wide)


def planned_and_recorded(
    path: Path, judging: Callable[[Mapping[str, Record]], Judge] | None = None
) -> tuple[Mapping[str, Any], list[Record]]:
    """Return plan.json with the rounds that its records ask for, and the records, both checked.

    `judging` makes the judge of a run from the last record of each trial.
    """
    records = list(read_records(path / "records.jsonl"))
    plan = read_plan(path)
    try:
        last = {record.trial_id: record for record in records}
        judge = judging(last) if judging else judge_of(path, last)
        plan = with_rounds(plan, last, judge)
    except _MALFORMED_RECORD_ERRORS as error:
        raise PagecageError(
            f"{path}: its search for memory cannot be repeated ({why_unreadable(error)})",
            "docs/FORMAT.md lists the keys",
        ) from None
    check_records(path, plan, records)
    return plan, records


class _JudgedRecords:
    """The last records of a run's trials, each judged once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._others: Mapping[str, Sequence[Record]] = {}
        self._known: dict[str, tuple[Verdicts, Series]] = {}

    def judge_of(self, last: Mapping[str, Record]) -> Judge:
        self._others = others_by_trial(last.values())
        return self.verdicts

    def verdicts(self, record: Record) -> Verdicts:
        return self.judged(record)[0]

    def judged(self, record: Record) -> tuple[Verdicts, Series]:
        if record.trial_id not in self._known:
            try:
                rows = read_lines(self._path, record, "sampler")
                damage = check_traces(self._path, record)
                verdicts = evaluate(record, rows, damage, self._others[record.trial_id])
                self._known[record.trial_id] = verdicts, series_of(rows)
            except _MALFORMED_RECORD_ERRORS as error:
                raise PagecageError(
                    f"{self._path}/records.jsonl: the record of trial {record.trial_id} cannot be"
                    f" evaluated ({why_unreadable(error)})",
                    "docs/FORMAT.md lists the keys",
                ) from None
        return self._known[record.trial_id]


def flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables by their names, joined by dots."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def describe_dataset(definition: Mapping[str, Any], size: str) -> str:
    table = (definition.get("sizes") or {}).get(size) or {}
    if places := {} if table.get("dataset") else table.get("places"):
        return ", ".join(f"{name} {value}" for name, value in places.items())
    files, each = table.get("files", 1), table.get("dataset") or "another size"
    return f"{files} x {each}" if files > 1 else str(each)


def excluded_trials(run: Run) -> list[JudgedTrial]:
    return [trial for trial in run.trials if trial.verdicts.is_data_point and not trial.is_included]


def with_included(run: Run, trial_ids: Collection[str]) -> Run:
    trials = tuple(
        replace(t, is_included_by_name=t.is_included_by_name or t.record.trial_id in trial_ids)
        for t in run.trials
    )
    return replace(run, trials=trials)


@contextmanager
def opened(source: Path) -> Iterator[Path]:
    """Yield the folder of a run; a bundle is unpacked into a temporary one."""
    if not source.is_file():
        yield source
        return
    with unpacked(source, source.name.removesuffix(SUFFIX)) as (folder, _):
        yield folder


@contextmanager
def bundled_runs(*places: Path, of: Collection[str] | None = None) -> Iterator[list[Run]]:
    """Load the run of every bundle; a place is a bundle, or a folder of them in their order.

    With `of`, only runs of these experiments are loaded. The runs' files exist within the context
    only. Raises PagecageError if a place does not exist, and for an invalid bundle or run.
    """
    bundles: list[Path] = []
    for place in places:
        exists = os.path.exists(place)  # noqa: PTH110 - Path.exists() raises for a name that is too long
        if not exists or not (place.is_dir() or place.name.endswith(SUFFIX)):
            hint = "pagecage export RUN --out FOLDER/FILE"
            raise PagecageError(f"{place} is not a folder or a bundle", hint)
        bundles += sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else [place]
    with ExitStack() as stack:
        runs = []
        for bundle in bundles:
            folder = stack.enter_context(opened(bundle))
            try:
                if of is None or read_plan(folder)["experiment"] in of:
                    runs.append(load_run(folder))
            except PagecageError as error:
                reason = str(error).partition("\n")[0].replace(str(folder), bundle.name)
                hint = f"remove {bundle}, or bundle its run again"
                raise PagecageError(reason, hint) from None
        yield runs


_HAS_FAILED: Mapping[str, Callable[[JudgedTrial], object]] = {
    "limits": lambda t: any(limit.verdict == "leaky" for limit in t.verdicts.limits),
    "cache_state_reached": lambda t: t.verdicts.cache_state_reached.verdict == "not_reached",
    "host_quiet": lambda t: t.verdicts.host_quiet.verdict == "not_quiet",
    "collectors": lambda t: incomplete_collectors(t.record),
    "consistency": lambda t: t.verdicts.consistency.verdict == "contradictory",
    "output": lambda t: output_reasons(t.record, t.verdicts.output),
    "volume": lambda t: late_volumes(t.record),
}
VERDICTS = tuple(_HAS_FAILED)
"""Names of the verdicts that exclude a trial if they fail."""


def failed_verdicts(trial: JudgedTrial) -> frozenset[str]:
    return frozenset(name for name, has_failed in _HAS_FAILED.items() if has_failed(trial))


def excluded_ids_named(run: Run, names: Sequence[str]) -> set[str]:
    """Return the ids of the excluded trials that `names` selects.

    A name is a trial id, or a verdict, which selects the trials that fail no other verdict. A trial
    of a baseline has reasons but no verdicts, so no verdict selects it.
    """
    verdicts, found = set(names) & set(VERDICTS), set()
    for trial in excluded_trials(run):
        failed, id_ = failed_verdicts(trial), trial.record.trial_id
        if id_ in set(names) - verdicts or (failed and failed <= verdicts):
            found.add(id_)
    return found


def include_by_name(run: Run, names: Sequence[str]) -> Run:
    """Return the run with the named trials included.

    Raises PagecageError for a name that selects no excluded trial.
    """
    verdicts = set(names) & set(VERDICTS)
    for name in names:
        without = excluded_ids_named(run, list(verdicts - {name}))
        if not excluded_ids_named(run, [name, *verdicts]) - without:
            excluded = ", ".join(
                f"{trial.record.trial_id} ({' and '.join(sorted(failed_verdicts(trial)))})"
                for trial in excluded_trials(run)
            )
            message = f"--include: {name} names no excluded trial"
            raise PagecageError(message, f"excluded are {excluded or 'none'}")
    return with_included(run, excluded_ids_named(run, names))


def included_by_name(run: Run) -> list[str]:
    return [trial.record.trial_id for trial in run.trials if trial.is_included_by_name]


def included_by_name_sentence(run: Run) -> str:
    ids = included_by_name(run)
    trials = "an excluded trial is" if len(ids) == 1 else f"{len(ids)} excluded trials are"
    return f"{trials} included by name: {', '.join(ids)}" if ids else ""
