"""Reads experiments/*.toml and cgroups/*.toml. The only place with pydantic: what leaves it is checked and plain."""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from pagecage.cage import UNCAGED, Cage
from pagecage.errors import PagecageError
from pagecage.experiment import Experiment, Level, Size
from pagecage.units import page_floor_bytes, parse_size_bytes


def _size_bytes(value: object) -> object:
    if isinstance(value, str):
        try:
            return parse_size_bytes(value)
        except PagecageError as error:
            raise ValueError(f"{error.message.removeprefix('size: ')}; {error.hint}") from None
    raise ValueError('a size is a string with a unit, as in "200MB" or "1GiB"')


SizeBytes = Annotated[
    int,
    BeforeValidator(
        _size_bytes, json_schema_input_type=Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)? *([kKMGT]B|[KMGT]iB|B)$")]
    ),
    Field(gt=0),
]
PLACES = ("file", "sidecar", "data_dir", "max_seconds")
CacheState = Literal["cold", "resident", "any"]
Collector = Literal["iostat", "sar", "vmtouch", "bpftrace"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Strict):
    """Where a question or a figure comes from."""

    title: str = ""
    author: str = ""
    date: str = ""
    url: str = ""


class Fraction(_Strict):
    """A size as a share of the dataset's."""

    dataset_fraction: Annotated[float, Field(gt=0)]


class CageFile(_Strict):
    """One file of cgroups/. Limits are systemd properties, verbatim (systemd.resource-control(5)); absent: no limit."""

    about: str
    MemoryMax: SizeBytes | Fraction | None = None
    MemorySwapMax: SizeBytes | Literal["infinity"] | None = Field(None, description="closed (0) unless given")
    IOReadBandwidthMax: SizeBytes | None = Field(None, description="bytes per second")
    IOReadIOPSMax: Annotated[int, Field(gt=0)] | None = None
    IOWriteBandwidthMax: SizeBytes | None = Field(None, description="bytes per second")
    IOWriteIOPSMax: Annotated[int, Field(gt=0)] | None = None
    CPUQuota: Annotated[int, Field(gt=0, description="percent of one CPU")] | None = None
    provider: str | None = None
    io_accounting_bytes: SizeBytes | None = None
    burst_bucket: dict[str, float] | None = None
    source: Source | None = None


class WorkloadTable(_Strict):
    """The program: one of workloads/ (`handshake`), or any command."""

    program: str
    kind: Literal["handshake", "command"] = "handshake"
    arguments: list[str] = []
    min_memory_bytes: SizeBytes | None = None


class SizeTable(_Strict):
    """How large a run of this size is; `max_seconds` bounds one measured part."""

    dataset: SizeBytes | None = None
    max_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    repeats: Annotated[int, Field(gt=0)] | None = None


class LevelTable(_Strict):
    """What one level changes."""

    arguments: list[str] = []
    cache: CacheState | None = None
    read_ahead_kb: Annotated[int, Field(ge=0)] | None = None
    cage: str | None = None


class ClaimTable(_Strict):
    """A published figure and the rule by which it counts as reproduced."""

    id: str
    says: str
    published: float | str
    unit: str
    response: str
    rule: Literal["absolute", "outcome", "ratio"]
    where: dict[str, str]
    over: dict[str, str] | None = None
    tolerance_factor: Annotated[float, Field(ge=1)] = 2.0
    needs: Literal["published_size", "any_size"] = "any_size"
    remark: str = ""


class ExperimentFile(_Strict):
    """One file of experiments/: a question, the factors varied to answer it, the sizes it can be run at, its claims."""

    question: str
    story: str = ""
    source: Source | None = None
    workload: WorkloadTable
    response: str = "full_pass_seconds"
    repeats: Annotated[int, Field(gt=0)] = 5
    fresh: Literal["never", "run", "block", "trial"] = "never"
    read_ahead_kb: Annotated[int, Field(ge=0)] | None = None
    collectors: list[Collector] = []
    factors: dict[str, list[str]]
    levels: dict[str, dict[str, LevelTable]] = {}
    exclude: list[dict[str, str]] = []
    sizes: dict[Literal["full", "default", "emulated", "smoke"], SizeTable]
    claims: list[ClaimTable] = []

    @model_validator(mode="after")
    def _consistent(self) -> ExperimentFile:
        for factor, levels in self.factors.items():
            if not levels:
                raise ValueError(f"factors.{factor} has no levels")
            if len(set(levels)) != len(levels):
                raise ValueError(f"factors.{factor} names a level twice")
        for factor, tables in self.levels.items():
            for level in tables:
                if level not in self.factors.get(factor, []):
                    raise ValueError(f"levels.{factor}.{level} is no level of factors.{factor}")
        self._check_treatments()
        self._check_places()
        if missing := {"full", "default", "emulated", "smoke"} - set(self.sizes):
            raise ValueError(f"sizes.{min(missing)} is missing")
        return self

    def _check_treatments(self) -> None:
        """Exclusions must name what exists, and factors but `cage` a table for each level."""
        for number, out in enumerate(self.exclude):
            if not out or (unknown := _outside(out, self.factors)):
                raise ValueError(f"exclude[{number}]: {unknown if out else 'it names no factor'} is no level here")
        for factor, levels in self.factors.items():
            bare = [level for level in levels if level not in self.levels.get(factor, {})]
            if bare and factor != "cage":
                raise ValueError(f"levels.{factor}.{bare[0]} is missing: a level without a table would change nothing")

    def _check_places(self) -> None:
        """A {place} in an argument must be one that the agent fills in, and have something to be filled with."""
        tables = [table for levels in self.levels.values() for table in levels.values()]
        for argument in [*self.workload.arguments, *(a for table in tables for a in table.arguments)]:
            for place in re.findall(r"\{([a-z_]+)\}", argument):
                if place not in PLACES and self.workload.kind == "handshake":
                    raise ValueError(f"workload.arguments: no {{{place}}}; known: {', '.join(PLACES)}")
                bare = [n for n, size in self.sizes.items() if place in PLACES and not _fills(place, size)]
                if bare:
                    raise ValueError(f"sizes.{bare[0]} gives nothing for {{{place}}}")


def _fills(place: str, size: SizeTable) -> bool:
    if place in ("file", "sidecar"):
        return size.dataset is not None
    return place != "max_seconds" or size.max_seconds is not None


def _outside(where: Mapping[str, str], factors: Mapping[str, list[str]]) -> str | None:
    """What of a partial treatment the factors do not know."""
    for factor, level in where.items():
        if level not in factors.get(factor, []):
            return f"{factor} = {level!r}"
    return None


def nearest(name: str, known: list[str]) -> str:
    """A hint that names the most similar known name, or all of them."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"?' if close else f"known: {', '.join(known)}"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PagecageError(f"{path.name}: {error}", f"edit {path}; https://toml.io describes the syntax") from None
    except OSError as error:
        raise PagecageError(f"{path} cannot be read: {error.strerror}", f"ls -l {path}") from None


def _complain(path: Path, error: ValidationError) -> PagecageError:
    """The first mistake, naming file and key; a union's other branches are left out."""
    first = error.errors()[0]
    key = ".".join(
        str(part) for part in first["loc"] if not str(part).startswith(("function-", "literal[", "Fraction"))
    )
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return PagecageError(f"{path.name}: unknown key {key!r}", _keys_hint(path, key))
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return PagecageError(f"{path.name}: {key or 'file'}: {message}{more}", f"edit {path}")


def _keys_hint(path: Path, key: str) -> str:
    """The nearest key of the same table; docs/schema/ has them all."""
    model: type[BaseModel] = CageFile if path.parent.name == "cgroups" else ExperimentFile
    head, _, rest = key.partition(".")
    if rest:
        model = {"workload": WorkloadTable, "sizes": SizeTable, "levels": LevelTable, "claims": ClaimTable}.get(
            head, model
        )
    return nearest(key.split(".")[-1], list(model.model_fields))


class Definitions:
    """The experiments and cages of one checkout."""

    def __init__(self, top: Path, programs: list[str]) -> None:
        self._experiments, self._cages, self._programs = top / "experiments", top / "cgroups", programs

    def experiment_names(self) -> list[str]:
        """Names that `make experiment NAME=` takes."""
        return sorted(path.stem for path in self._experiments.glob("*.toml"))

    def cage_names(self) -> list[str]:
        """Names that a cage factor and `CAGE=` take."""
        return sorted(path.stem for path in self._cages.glob("*.toml"))

    def experiment(self, name: str) -> Experiment:
        """One experiment, checked. Raises PagecageError naming file and key, or the nearest name."""
        path = self._path(self._experiments, name, "experiment", self.experiment_names())
        data = _read_toml(path)
        try:
            table = ExperimentFile.model_validate(data)
        except ValidationError as error:
            raise _complain(path, error) from None
        self._check_names(path, table)
        return _experiment(name, table, data, path)

    def cage(self, name: str, dataset_bytes: int | None, where: str = "CAGE") -> Cage:
        """One cage with every value resolved against the dataset's size."""
        path = self._path(self._cages, name, "cage", self.cage_names(), where)
        try:
            table = CageFile.model_validate(_read_toml(path))
        except ValidationError as error:
            raise _complain(path, error) from None
        return _cage(name, table, dataset_bytes, path)

    def _path(self, folder: Path, name: str, kind: str, known: list[str], where: str = "") -> Path:
        if name not in known:
            place = f"{where}: " if where else ""
            raise PagecageError(f"{place}there is no {kind} {name!r}", nearest(name, known))
        return folder / f"{name}.toml"

    def _check_names(self, path: Path, table: ExperimentFile) -> None:
        if table.workload.kind == "handshake" and table.workload.program not in self._programs:
            known = nearest(table.workload.program, self._programs)
            raise PagecageError(f"{path.name}: workload.program: no workload {table.workload.program!r}", known)
        own = {level.cage for levels in table.levels.values() for level in levels.values() if level.cage}
        renamed = table.levels.get("cage", {})
        named = {level for level in table.factors.get("cage", []) if not (level in renamed and renamed[level].cage)}
        for cage in sorted(own | named):
            self._path(self._cages, cage, "cage", self.cage_names(), f"{path.name}: factors.cage")


def _experiment(name: str, table: ExperimentFile, data: dict[str, Any], path: Path) -> Experiment:
    return Experiment(
        name=name, question=table.question, program=table.workload.program, workload_kind=table.workload.kind,
        arguments=tuple(table.workload.arguments), min_memory_bytes=table.workload.min_memory_bytes or 0,
        response=table.response, repeats=table.repeats, fresh=table.fresh, read_ahead_kb=table.read_ahead_kb,
        collectors=tuple(table.collectors), factors={k: tuple(v) for k, v in table.factors.items()},
        levels={f: {n: _level(level) for n, level in levels.items()} for f, levels in table.levels.items()},
        exclude=tuple(table.exclude), claims=tuple(claim.model_dump() for claim in table.claims),
        sizes={n: Size(s.dataset, s.max_seconds, s.repeats) for n, s in table.sizes.items()},
        definition_sha256=hashlib.sha256(path.read_bytes()).hexdigest(), definition=data,
    )  # fmt: skip


def _level(table: LevelTable) -> Level:
    return Level(tuple(table.arguments), table.cache, table.read_ahead_kb, table.cage)


def _cage(name: str, table: CageFile, dataset_bytes: int | None, path: Path) -> Cage:
    data = table.model_dump()
    limits = {k: data[k] for k in CageFile.model_fields if k[0].isupper() and data[k] is not None}
    if isinstance(table.MemoryMax, Fraction):
        if dataset_bytes is None:
            raise PagecageError(f"{path.name}: MemoryMax is a share of a dataset, and there is none", "give a size")
        limits["MemoryMax"] = page_floor_bytes(round(dataset_bytes * table.MemoryMax.dataset_fraction))
    # Swap is closed, or anonymous memory would spill instead of being killed; and swap-in passes io.max unthrottled.
    if limits.get("MemorySwapMax") == "infinity":
        del limits["MemorySwapMax"]
    elif name != UNCAGED:
        limits.setdefault("MemorySwapMax", 0)
    provenance = {k: v for k, v in data.items() if not k[0].isupper() and v is not None}
    return Cage(name, limits, provenance)


def schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schemas of docs/schema/, by file name."""
    return {
        f"{name}.schema.json": {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
        for name, model in (("experiment", ExperimentFile), ("cage", CageFile))
    }
