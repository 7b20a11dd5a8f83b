"""Tables of custom programs and collectors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, Tag

from pagecage.checkout import find_project
from pagecage.definitions.fields import StrictTable, Tables
from pagecage.errors import PagecageError, nearest
from pagecage.model.collectors import STATISTICS, OwnCollector, clashing, wrong_name
from pagecage.model.trial import COLLECTORS
from pagecage.units import MIB, format_bytes

CollectorName = Literal[*COLLECTORS]  # type: ignore[valid-type]
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
    return tuple(name for name in given if isinstance(given, list) or given[name] is True)


def custom_collectors(
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
    if bpftrace:
        programs += [
            OwnCollector(
                script_name(script),
                (in_programs(script),),
                bpftrace.required,
                period_seconds=0.0,
                start_timeout_seconds=_SCRIPT_SECONDS,
                is_script=True,
            )
            for script in bpftrace.scripts
        ]
    return tuple(programs)


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
    names = [one.name for one in custom_collectors(given, bpftrace)]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"collectors: two are named {repeated[0]!r}")
    if pair := clashing(names):
        raise ValueError(f"collectors: responses of {pair[1]!r} could be those of {pair[0]!r}")
    beginnings = tuple(f"{name}_{statistic}_" for name in names for statistic in STATISTICS)
    if taken := [metric for metric in metrics if metric.startswith(beginnings)]:
        raise ValueError(f"workload.metrics.{taken[0]} has the name of a collector's response")


FOLDER = "programs"
_NAMED = re.compile(r"\{programs\}/([A-Za-z0-9._-]*)")
_SECTION = re.compile(r"(\./)?[A-Za-z0-9][A-Za-z0-9._-]*\.py")
_MOST_BYTES = MIB


def custom_programs(definition: Tables, path: Path) -> dict[str, str]:
    """Return the texts of the programs that the definition in `path` names, by name.

    `{programs}/NAME` in any of its words names experiments/programs/NAME. A word of a collector
    that begins with ./ names a file beside the definition, and so does a bpftrace script. Raises
    PagecageError for a file that is missing, is not text, or is larger than 1 MiB.
    """
    folder = path.parent / FOLDER
    names = sorted({name for word in _words(definition) for name in _NAMED.findall(word)})
    found = {name: _read(folder, name, path) for name in names}
    collectors = definition.get("collectors")
    tables = collectors.values() if isinstance(collectors, dict) else ()
    commands = [table["command"] for table in tables if isinstance(table, dict)]
    commands.append((definition.get("bpftrace") or {}).get("scripts", ()))
    beside = (word for command in commands for word in command if is_beside(word))
    for word in dict.fromkeys(beside):
        file = _inside(path, word)
        if file.name in found:
            reason = f"{path.name}: two of its files are named {file.name!r}"
            raise PagecageError(reason, f"rename {file}")
        found[file.name] = _read(file.parent, file.name, path)
    return found


def custom_sections(definition: Tables, path: Path) -> dict[str, str]:
    """Return the texts of the definition's own parts of the report, by file name.

    Raises PagecageError for a name that is no Python file beside the definition, and like
    custom_programs().
    """
    names: Sequence[str] = definition.get("sections", ())
    for name in names:
        if not _SECTION.fullmatch(name):
            reason = f"{path.name}: sections: {name!r} is not the name of a Python file beside it"
            raise PagecageError(reason, f"move it to {path.parent}, and name it as in mine.py")
    files = [_inside(path, name) for name in names]
    return {file.name: _read(file.parent, file.name, path) for file in files}


def definition_sha256(path: Path, programs: Mapping[str, str]) -> str:
    digest = hashlib.sha256(path.read_bytes())
    for name, text in programs.items():
        digest.update(f"\0{name}\0{text}".encode())
    return digest.hexdigest()


def _words(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    values = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    for value in values:
        yield from _words(value)


def _inside(path: Path, word: str) -> Path:
    """Return the file that a word names. Raises PagecageError if it is outside the project."""
    file = (path.parent / word).resolve()
    top = (find_project(path.absolute().parent) or path.parent).resolve()
    if not file.is_relative_to(top):
        raise PagecageError(f"{path.name}: {word!r} is outside of {top}", "move it there")
    return file


def _read(folder: Path, name: str, path: Path) -> str:
    program = folder / name
    if not program.is_file():
        known = sorted(one.name for one in folder.glob("*") if one.is_file())
        reason = f"{path.name}: there is no program {name!r} in {folder}"
        raise PagecageError(reason, nearest(name, known) if known else f"write {program}")
    if (size_bytes := program.stat().st_size) > _MOST_BYTES:
        raise PagecageError(
            f"{path.name}: {program} has {format_bytes(size_bytes)}; a definition's own program"
            f" has at most {format_bytes(_MOST_BYTES)}",
            "let the program fetch or make what it needs",
        )
    try:
        return program.read_text()
    except UnicodeDecodeError:
        reason = f"{path.name}: {program} is not text"
        raise PagecageError(reason, "write a script, or add a workload") from None
    except OSError as error:
        reason = f"{program} cannot be read: {error.strerror}"
        raise PagecageError(reason, f"ls -l {program}") from None
