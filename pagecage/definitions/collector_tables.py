"""The tables of experiments/*.toml that bring collectors along: [collectors] and [bpftrace]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import BaseModel, Discriminator, Field, Tag

from pagecage.definitions.fields import StrictTable
from pagecage.model.collectors.lines import STATISTICS
from pagecage.model.collectors.spec import OwnCollector, clashing, wrong_name
from pagecage.model.trial import COLLECTORS

CollectorName = Literal["iostat", "sar", "vmtouch", "bpftrace", "blocklat", "perf-mem", "damon"]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Words = Annotated[list[str], Field(min_length=1)]
_SCRIPT_SECONDS = 60.0


class OwnCollectorTable(StrictTable):
    """A program that prints JSON lines while a trial runs, outside of the cage."""

    command: Words = Field(
        description="program and arguments; a word that begins with ./ is a file beside the"
        " definition, which is copied to the host"
    )
    required: bool = Field(
        False, description="a trial without complete data of this collector is not averaged"
    )
    period_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        1.0, description="expected time between two lines; 0 for lines that come irregularly"
    )
    start_timeout_seconds: Seconds = Field(
        10.0, description="the workload waits for the first line at most this long"
    )


class BpftraceTable(StrictTable):
    """bpftrace scripts of the definition, each attached anew for every trial."""

    scripts: Words = Field(description="files beside the definition, such as ./mine.bt")
    required: bool = Field(
        False, description="a trial without complete data of these scripts is not averaged"
    )


def _by_type(table: str, other: str) -> Discriminator:
    """Return a choice by type, so that an error is that of the branch which was meant."""
    return Discriminator(lambda given: table if isinstance(given, dict | BaseModel) else other)


CollectorTables = dict[
    str,
    Annotated[
        Annotated[OwnCollectorTable, Tag("tag-own")] | Annotated[Literal[True], Tag("tag-true")],
        _by_type("tag-own", "tag-true"),
    ],
]
"""[collectors]: true for a collector of pagecage, a table for one of the definition."""
Collectors = Annotated[
    Annotated[CollectorTables, Tag("tag-tables")] | Annotated[list[CollectorName], Tag("tag-list")],
    _by_type("tag-tables", "tag-list"),
]


def built_in(given: list[CollectorName] | CollectorTables) -> tuple[str, ...]:
    """Return the collectors of pagecage that a definition uses."""
    return tuple(name for name in given if isinstance(given, list) or given[name] is True)


def own_collectors(
    given: list[CollectorName] | CollectorTables, bpftrace: BpftraceTable | None
) -> tuple[OwnCollector, ...]:
    """Return the collectors that a definition brings along, scripts last."""
    tables = {} if isinstance(given, list) else given
    programs = [
        OwnCollector(
            name,
            tuple(map(in_programs, table.command)),
            table.required,
            table.period_seconds,
            table.start_timeout_seconds,
        )
        for name, table in tables.items()
        if isinstance(table, OwnCollectorTable)
    ]
    return (*programs, *_scripts(bpftrace))


def _scripts(table: BpftraceTable | None) -> Iterator[OwnCollector]:
    for script in table.scripts if table else ():
        command = (in_programs(script),)
        yield OwnCollector(script_name(script), command, table.required, 0.0, _SCRIPT_SECONDS, True)  # type: ignore[union-attr]


def script_name(script: str) -> str:
    """Return the name of a script's collector: that of its file, with _ for what is no letter."""
    return PurePath(script).stem.replace("-", "_").replace(".", "_")


def in_programs(word: str) -> str:
    """Return a word with the path on the host if it is a file beside the definition."""
    return f"{{programs}}/{PurePath(word).name}" if is_beside(word) else word


def is_beside(word: str) -> bool:
    """Return whether a word names a file beside the definition."""
    return word.startswith(("./", "../"))


def check_collectors(
    given: list[CollectorName] | CollectorTables,
    bpftrace: BpftraceTable | None,
    metrics: Mapping[str, object],
) -> None:
    """Raise ValueError for a wrong name, and for responses of one name."""
    for name, table in {} if isinstance(given, list) else dict(given).items():
        if table is True and name not in COLLECTORS:
            raise ValueError(
                f"collectors.{name}: pagecage has no such collector; a table with `command` makes"
                " one of your own"
            )
        if table is not True and (reason := wrong_name(name, COLLECTORS)):
            raise ValueError(f"collectors.{name}: {reason}")
    for script in bpftrace.scripts if bpftrace else ():
        if not is_beside(script):
            raise ValueError(f"bpftrace.scripts: {script!r} does not begin with ./")
        if reason := wrong_name(script_name(script), COLLECTORS):
            raise ValueError(f"bpftrace.scripts: {script!r}: {reason}")
    names = [one.name for one in own_collectors(given, bpftrace)]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"collectors: two are named {repeated[0]!r}")
    if pair := clashing(names):
        raise ValueError(f"collectors: responses of {pair[1]!r} could be those of {pair[0]!r}")
    beginnings = tuple(f"{name}_{statistic}_" for name in names for statistic in STATISTICS)
    if taken := [metric for metric in metrics if metric.startswith(beginnings)]:
        raise ValueError(f"workload.metrics.{taken[0]} has the name of a collector's response")
