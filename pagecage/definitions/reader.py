"""Definitions and cages found in files, and read."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from pagecage.checkout import MARKER
from pagecage.definitions.cage_file import CAGE_TABLES as CAGE_TABLES
from pagecage.definitions.cage_file import CageFile, DatasetFraction, resolve_cage
from pagecage.definitions.claim_tables import (
    ClaimTable,
    FindingTable,
    ReportTable,
    check_config_key,
    complete_claim,
)
from pagecage.definitions.custom_tables import (
    BpftraceTable,
    built_in,
    custom_collectors,
    custom_programs,
    custom_sections,
    definition_sha256,
)
from pagecage.definitions.experiment import Experiment, ExperimentFile
from pagecage.definitions.fields import Citation, Tables
from pagecage.definitions.trial_tables import DataTable, LevelTable, SizeTable, WorkloadTable
from pagecage.errors import PagecageError, nearest, why_unreadable
from pagecage.model.cage import UNCAGED, Cage
from pagecage.model.json_codec import DEFINITION
from pagecage.model.published_figures import read_articles


@dataclass(frozen=True)
class DefinitionFiles:
    """The files of one kind, `experiment` or `cage`.

    `built_in` is pagecage's folder, `own` that of the user's project; None without a project. Of
    two files with one name, the project's counts.
    """

    kind: str
    built_in: Path
    own: Path | None

    def names(self) -> list[str]:
        return sorted({*_names(self.built_in), *self.own_names()})

    def own_names(self) -> list[str]:
        return _names(self.own) if self.own else []

    def replacing(self) -> list[str]:
        """Return the names in the user's project that pagecage has too."""
        return sorted({*self.own_names()} & {*_names(self.built_in)})

    def find(self, name: str, where: str = "") -> Path:
        """Return the file of a definition. Raises PagecageError with the nearest name."""
        own, own_names, lacking = self.own, self.own_names(), ""
        if own and name in own_names:
            return check_stem(own / f"{name}.toml", self.kind)
        if name in _names(self.built_in):
            return self.built_in / f"{name}.toml"
        if own and not own_names and self.kind == "experiment":
            is_project = own.is_dir() or (own.parent / MARKER).is_file()
            lacking = f", and the project {own.parent} defines none" if is_project else ""
        listing = "pagecage list" if self.kind == "experiment" else "pagecage cage list"
        prefix, hint = f"{where}: " if where else "", nearest(name, self.names(), listing)
        if lacking and not hint.startswith("did you mean"):
            hint = "pagecage init -- COMMAND makes one"
        raise PagecageError(f"{prefix}there is no {self.kind} {name!r}{lacking}", hint)


def _names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.toml"))


def is_path(name: str) -> bool:
    """Return whether the user gave the path of a definition instead of its name."""
    return "/" in name and name.endswith(".toml")


def check_stem(path: Path, kind: str) -> Path:
    """Return the path of a definition. Raises PagecageError if its stem is not a valid name.

    `uncaged` is the control without limits, which no project may replace.
    """
    if kind == "cage" and path.stem == UNCAGED:
        reason = f"{path}: {UNCAGED} is the control without limits, in every project"
        raise PagecageError(reason, f"rename {path}")
    check_name(path.stem, kind, f"rename {path}")
    return path


def check_name(name: str, kind: str = "experiment", fix: str = "choose another") -> str:
    """Return the name of a definition. Raises PagecageError if it cannot name runs and cgroups."""
    if not DEFINITION.fullmatch(name):
        reason = f"{name!r} is not a valid name for {'an' if kind[0] == 'e' else 'a'} {kind}"
        raise PagecageError(reason, f"{fix}: small letters, digits and dashes")
    return name


def read_toml(path: Path) -> Tables:
    """Return the tables of a file. Raises PagecageError if it cannot be read."""
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise PagecageError(f"{path} cannot be read: {error.strerror}", f"ls -l {path}") from None
    except (ValueError, RecursionError) as error:
        reason = why_unreadable(error)
        reason = f"{path.name}: {reason}"
        raise PagecageError(reason, f"edit {path}; https://toml.io describes the syntax") from None
    if _contains_nul(data):
        reason = f"{path.name}: a string contains a NUL byte, which cannot be passed to a program"
        raise PagecageError(reason, f"edit {path}")
    return data


def _contains_nul(tree: Any) -> bool:
    if isinstance(tree, str):
        return "\0" in tree
    keys = tree if isinstance(tree, dict | list) else ()
    return any(map(_contains_nul, [*keys, *(tree.values() if isinstance(tree, dict) else ())]))


def _first_error(path: Path, error: ValidationError) -> PagecageError:
    """Return the first error with file and key, without the names of a union's branches."""
    # A misspelt key comes first, because it explains other errors.
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    key = ".".join(
        str(part)
        for part in first["loc"]
        if not str(part).startswith(("function-", "literal[", "Fraction", "tag-"))
    )
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return PagecageError(f"{path.name}: unknown key {key!r}", _keys_hint(path, key))
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return PagecageError(f"{path.name}: {key or 'file'}: {message}{more}", f"edit {path}")


def _keys_hint(path: Path, key: str) -> str:
    tables: dict[str, type[BaseModel]] = {
        "workload": WorkloadTable,
        "data": DataTable,
        "bpftrace": BpftraceTable,
        "sizes": SizeTable,
        "levels": LevelTable,
        "claims": ClaimTable,
        "headline": FindingTable,
        "findings": FindingTable,
        "tables": ReportTable,
        "source": Citation,
        **CAGE_TABLES,
    }
    *parents, last = key.split(".")
    if parents[:1] == ["disks"] and len(parents) > 2:  # "disks.wal.burst" has the keys of "burst"
        parents = parents[2:]
    whole: type[BaseModel] = CageFile if path.parent.name == "cgroups" else ExperimentFile
    model = tables.get(parents[0], whole) if parents else whole
    # "simulation.limits.0.iops" is a key of the first table of [[simulation.limits]].
    model = tables.get(".".join(name for name in parents if not name.isdigit()), model)
    return nearest(last, list(model.model_fields))


def _cage_file(path: Path) -> CageFile:
    try:
        return CageFile.model_validate(read_toml(path))
    except ValidationError as error:
        raise _first_error(path, error) from None


class Definitions:
    """The experiments and cages of pagecage, and those of the user's project if there is one."""

    def __init__(self, top: Path, programs: list[str], project: Path | None = None) -> None:
        own = project if project != top else None
        self.experiments, self.cages = (
            DefinitionFiles(kind, top / folder, own / folder if own else None)
            for kind, folder in (("experiment", "experiments"), ("cage", "cgroups"))
        )
        self._programs, self._project, self._top = programs, project, top
        self._articles = cache(read_articles)

    def experiment_names(self) -> list[str]:
        return self.experiments.names()

    def cage_names(self) -> list[str]:
        return self.cages.names()

    def experiment(self, name: str) -> Experiment:
        """Return one experiment by its name or the path of its file, checked.

        Raises PagecageError with file and key, or with the nearest name if there is no such
        experiment.
        """
        is_file = is_path(name)
        path = check_stem(Path(name), "experiment") if is_file else self.experiments.find(name)
        name = path.stem
        data = read_toml(path)
        try:
            table = ExperimentFile.model_validate(data)
        except ValidationError as error:
            raise _first_error(path, error) from None
        data |= {"claims": self._claims(name, table, data, path)} if table.claims else {}
        experiment = _experiment(name, table, data, path)
        if not path.is_relative_to(self._top / "experiments"):
            project = self._project or path.absolute().parent
            is_built_in = path.resolve().is_relative_to((self._top / "experiments").resolve())
            experiment = replace(experiment, project=project, file=None if is_built_in else path)
        for program in sorted(experiment.programs() - set(self._programs)):
            known = nearest(program, self._programs)
            reason = f"{path.name}: workload.program: there is no workload {program!r}"
            raise PagecageError(reason, known)
        for cage in sorted(experiment.cage_names()):
            self.cages.find(cage, f"{path.name}: factors.cage")
        return experiment

    def cage(self, name: str, dataset_bytes: int | None, where: str = "CAGE") -> Cage:
        """Return a cage, by its name or its file, with limits that fit the dataset's size."""
        path = self._cage_path(name, where)
        return resolve_cage(path.stem, _cage_file(path), dataset_bytes, path)

    def cage_without_dataset(self, name: str) -> tuple[Cage, float | None]:
        """Return one cage without a dataset, and the share of the dataset that MemoryMax is.

        The cage then lacks MemoryMax. The share is None if MemoryMax is a size or missing.
        """
        path = self._cage_path(name)
        table = _cage_file(path)
        if not isinstance(table.MemoryMax, DatasetFraction):
            return resolve_cage(path.stem, table, None, path), None
        cage = resolve_cage(path.stem, table.model_copy(update={"MemoryMax": None}), None, path)
        return cage, table.MemoryMax.dataset_fraction

    def _cage_path(self, name: str, where: str = "") -> Path:
        return check_stem(Path(name), "cage") if is_path(name) else self.cages.find(name, where)

    def _claims(self, name: str, table: ExperimentFile, data: Tables, path: Path) -> list[Tables]:
        """Return the claims, completed so that a plan needs no other file for their verdicts."""
        try:
            articles = self._articles(path.parent / "articles")
            claims = [complete_claim(claim, articles, name) for claim in table.claims]
            for claim in claims:
                check_config_key(claim, data)
        except PagecageError as error:
            raise PagecageError(f"{path.name}: {error.message}", error.hint) from None
        return claims


_AS_GIVEN = (
    *("question", "response", "repeats", "fresh", "read_ahead_kb", "fill", "driver", "workload"),
    *("data", "conditions", "copies", "factors", "levels", "exclude", "packages"),
)
"""Keys of the file whose values an experiment has as they are."""


def _experiment(name: str, table: ExperimentFile, data: Tables, path: Path) -> Experiment:
    programs, sections = custom_programs(data, path), custom_sections(data, path)
    usual = {"smoke": "covering"}
    sizes: dict[str, SizeTable] = {
        n: size.model_copy(update={"treatments": size.treatments or usual.get(n, "all")})
        for n, size in table.sizes.items()
    }
    return Experiment(
        name=name,
        **{key: getattr(table, key) for key in _AS_GIVEN},
        collectors=built_in(table.collectors),
        own_collectors=custom_collectors(table.collectors, table.bpftrace),
        claims=tuple(data.get("claims", ())),
        sizes=sizes,
        definition_sha256=definition_sha256(path, {**programs, **sections}),
        definition=data,
        own_programs=programs,
        sections=sections,
    )


def known_programs(top: Path) -> list[str]:
    """Return the names of the programs that tools/build-workloads makes.

    A Rust crate has its own name. A port to another language has the language appended
    (`pcscan-python`). A C program is a folder with a main.c. It is a port if a crate has its name.
    """
    folder = top / "workloads"
    rust = {path.name for path in folder.glob("pc*") if (path / "src/main.rs").exists()}
    c = (
        f"{p.parent.name}-c" if p.parent.name in rust else p.parent.name
        for p in (folder / "c").glob("pc*/main.c")
    )
    python = (f"{path.stem}-python" for path in (folder / "python").glob("pc*.py"))
    java = (f"{path.stem.lower()}-java" for path in folder.glob("[jl]*/Pc*.java"))
    return sorted({*rust, *c, *python, *java})
